"""Where calls come in and go out. A transport is a plug: a node names the ones it wants.

Never: know a verb, a lease or a principal. An inbound hands every call to a `Handler` (the
dispatcher), an outbound *is* one, so that middleware fits both.
"""

from typing import Protocol

from omnirelay.rpc.codec import Codec
from omnirelay.rpc.meta import Reply, Request


class Inbound(Protocol):
    name: str
    """`http`, `grpc`, `stream` or `memory`; stands in `RequestMeta.transport`."""

    @property
    def url(self) -> str:
        """Where it listens, once started: port 0 has become a real one."""

    async def start(self) -> None:
        """Listen. Raises Unavailable if the address is taken, InvalidOption if it cannot be one."""

    async def stop(self, grace_s: float) -> None:
        """Take no new call, let those under way finish for at most `grace_s`, then cut them off.
        To stop twice, or before the start, does nothing."""

    def reload_tls(self) -> None:
        """Certificate files have changed: new connections get the new ones. What shares the node's
        own TLS context has nothing to do."""


class Outbound(Protocol):
    name: str
    codec: Codec
    """What its callers should encode bodies with."""

    async def start(self) -> None:
        """Make ready; connecting may wait until the first call."""

    async def stop(self) -> None: ...

    async def __call__(self, request: Request) -> Reply:
        """Raises the error the other side reported (`status.error_of`); Unavailable if the call
        was surely not taken, OutcomeUnknown if it may have been, DeadlineExceeded when
        `meta.expires_ms` has passed. Cancelling it tells the other side."""
