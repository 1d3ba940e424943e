"""From an address to a relay."""

import asyncio
from typing import Any

from omnirelay.lease.options import QueueOptions
from omnirelay.mesh.keeper import KeepOptions
from omnirelay.model.errors import InvalidOption
from omnirelay.sdk.client import Relay
from omnirelay.sdk.engine import Engine
from omnirelay.sdk.link import BlockingLink, EmbeddedLink
from omnirelay.sdk.sync import SyncRelay
from omnirelay.stores.registry import is_journal


class Connecting:
    """What `connect` returns: `async with connect(...)`, or await it and close by hand."""

    def __init__(self, url: str, options: dict[str, Any]) -> None:
        self._url = url
        self._options = options
        self._relay: Relay | None = None

    async def open(self) -> Relay:
        peer_id = self._options.pop("peer_id", None)
        engine = await asyncio.to_thread(_open, self._url, self._options)
        return Relay(EmbeddedLink(engine), peer_id=peer_id)

    def __await__(self):  # type: ignore[no-untyped-def]
        return self.open().__await__()

    async def __aenter__(self) -> Relay:
        self._relay = await self.open()
        return self._relay

    async def __aexit__(self, *error: Any) -> None:
        assert self._relay is not None
        await self._relay.close()


def connect(
    url: str,
    *,
    namespace: str = "resourcelease",
    options: QueueOptions | None = None,
    keep: KeepOptions | None = None,
    require: str | None = None,
    peer_id: str | None = None,
) -> Connecting:
    """`sqlite:///leases.db` or `memory:` embeds a queue in this process.

    `require` is the least the journal must survive (process_kill, power_loss, node_loss); opening
    fails if the store does not state it.
    """
    return Connecting(
        url,
        {
            "namespace": namespace,
            "options": options,
            "keep": keep,
            "require": require,
            "peer_id": peer_id,
        },
    )


def connect_sync(
    url: str,
    *,
    namespace: str = "resourcelease",
    options: QueueOptions | None = None,
    keep: KeepOptions | None = None,
    require: str | None = None,
    peer_id: str | None = None,
) -> SyncRelay:
    """The same for threads. Close it, or use it with `with`."""
    settings = {"namespace": namespace, "options": options, "keep": keep, "require": require}
    return SyncRelay(Relay(BlockingLink(_open(url, settings)), peer_id=peer_id))


def _open(url: str, settings: dict[str, Any]) -> Engine:
    if not is_journal(url):
        raise InvalidOption(f"cannot connect to {url!r}: use sqlite:///path or memory:")
    return Engine.open(url, **settings)
