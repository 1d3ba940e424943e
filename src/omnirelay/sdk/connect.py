"""From an address to a relay."""

import asyncio
import threading
from collections.abc import Generator
from typing import Any

from omnirelay.lease.options import QueueOptions
from omnirelay.mesh.keeper import KeepOptions
from omnirelay.model.errors import InvalidOption
from omnirelay.sdk.arguments import named, proved
from omnirelay.sdk.client import Relay
from omnirelay.sdk.engine import Engine
from omnirelay.sdk.link import BlockingLink, EmbeddedLink
from omnirelay.sdk.sync import SyncRelay
from omnirelay.stores.registry import is_journal


class Connecting:
    """What `connect` returns: `async with connect(...)`, or await it and close by hand."""

    def __init__(self, url: str, settings: dict[str, Any], *, peer_id: str | None) -> None:
        self._url = url
        self._settings = settings
        self._peer_id = peer_id
        self._relay: Relay | None = None

    async def open(self) -> Relay:
        opening = _Opening()
        try:
            engine = await asyncio.to_thread(opening.run, self._url, self._settings)
        except asyncio.CancelledError:
            opening.abandon()
            raise
        return Relay(EmbeddedLink(engine), peer_id=self._peer_id)

    def __await__(self) -> Generator[Any, None, Relay]:
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
    settings = _checked(namespace, options, keep, require)
    return Connecting(url, settings, peer_id=None if peer_id is None else named("peer_id", peer_id))


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
    peer_id = None if peer_id is None else named("peer_id", peer_id)
    engine = _open(url, _checked(namespace, options, keep, require))
    return SyncRelay(Relay(BlockingLink(engine), peer_id=peer_id))


def _checked(
    namespace: str, options: QueueOptions | None, keep: KeepOptions | None, require: str | None
) -> dict[str, Any]:
    """All but `require`, which the journal itself judges, before a file is touched."""
    for name, value, kind in (("options", options, QueueOptions), ("keep", keep, KeepOptions)):
        if value is not None and not isinstance(value, kind):
            raise InvalidOption(f"{name} is {value!r:.80}, must be {kind.__name__}")
    return {
        "namespace": named("namespace", namespace),
        "options": None if options is None else proved(options),
        "keep": None if keep is None else proved(keep),
        "require": require,
    }


class _Opening:
    """A queue opened on another thread for somebody who may not wait for it: then it is closed, so
    that its file is free again."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._engine: Engine | None = None
        self._is_abandoned = False

    def run(self, url: str, settings: dict[str, Any]) -> Engine:
        engine = _open(url, settings)
        with self._lock:
            self._engine = engine
            is_abandoned = self._is_abandoned
        if is_abandoned:
            engine.close()
        return engine

    def abandon(self) -> None:
        with self._lock:
            self._is_abandoned = True
            engine = self._engine
        if engine is not None:
            engine.close()


def _open(url: str, settings: dict[str, Any]) -> Engine:
    if not isinstance(url, str) or not is_journal(url):
        raise InvalidOption(f"cannot connect to {url!r}: use sqlite:///path or memory:")
    return Engine.open(url, **settings)
