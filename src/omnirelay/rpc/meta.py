"""What every call carries beside its body, whatever wire it came over."""

from collections.abc import AsyncGenerator, AsyncIterator, Mapping

import msgspec

from omnirelay.model.items import ANONYMOUS
from omnirelay.rpc.codec import JSON, Codec


class Certificate(msgspec.Struct, frozen=True):
    """A client certificate that the transport has verified."""

    subject: str
    names: tuple[str, ...]
    """DNS and URI names (SPIFFE ids among them), as the certificate lists them."""
    thumbprint: str
    """SHA-256 of the certificate, in lower-case hex."""


class RequestMeta(msgspec.Struct, frozen=True, kw_only=True):
    """`principal`, `proof` and `roles` are what was proved, not what was claimed: only the identity
    middleware sets them."""

    procedure: str
    """`namespace::verb`."""
    transport: str
    """`memory`, `http`, `grpc` or `stream`."""
    caller: str | None = None
    encoding: str = "json"
    shard_key: str | None = None
    routing_key: str | None = None
    routing_delegate: str | None = None
    expires_ms: int | None = None
    """When the caller stops waiting, on the monotonic clock of this process."""
    headers: Mapping[str, str] = {}
    """All headers, names in lower case. A header that came twice is joined by a comma and listed in
    `doubled`."""
    doubled: frozenset[str] = frozenset()
    address: str = ""
    """Where the connection comes from; empty inside one process."""
    certificate: Certificate | None = None
    principal: str = ANONYMOUS
    proof: str | None = None
    """Digest of what proved the principal (a thumbprint, a token's hash), never the secret."""
    peer_id: str | None = None
    """The worker a caller names for itself in `x-peer-id`, under its proved principal."""

    @property
    def namespace(self) -> str:
        return self.procedure.partition("::")[0]

    @property
    def verb(self) -> str:
        return self.procedure.partition("::")[2]


class Request(msgspec.Struct, frozen=True):
    meta: RequestMeta
    body: bytes = b""
    codec: Codec = JSON
    """How `body` is read and the answer written."""
    inbound: AsyncIterator[bytes] | None = None
    """What a client-stream or duplex caller sends after the call; None for the other kinds."""


class Response(msgspec.Struct, frozen=True):
    """One answer. `empty` says that there is none to give (HTTP 204).

    A procedure may give it `headers` of printable ASCII. Over every transport its caller finds
    them there, names in lower case, beside those of the last hop: `rpc-transport`, `rpc-protocol`,
    `rpc-encoding` and, if the call named one, `rpc-shard-key`."""

    body: bytes = b""
    headers: Mapping[str, str] = {}
    empty: bool = False


class Stream(msgspec.Struct, frozen=True):
    """Many answers. Who stops reading early closes it, which ends the call on the server too."""

    messages: AsyncGenerator[bytes]


Reply = Response | Stream
