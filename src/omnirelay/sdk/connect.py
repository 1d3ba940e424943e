"""From an address to a relay."""

import asyncio
import threading
from collections.abc import Generator
from typing import Any

from omnirelay.lease.options import QueueOptions
from omnirelay.mesh.keeper import KeepOptions
from omnirelay.model.errors import InvalidOption
from omnirelay.model.ports import RandomIds, SystemClock, chance
from omnirelay.sdk.addresses import is_node, opener
from omnirelay.sdk.arguments import milliseconds, named, proved
from omnirelay.sdk.asking import Route
from omnirelay.sdk.client import Relay
from omnirelay.sdk.engine import Engine
from omnirelay.sdk.link import BlockingLink, EmbeddedLink, Link
from omnirelay.sdk.remote import RemoteLink
from omnirelay.sdk.sync import SyncRelay
from omnirelay.sdk.threaded import ThreadedLink
from omnirelay.stores.address import masked
from omnirelay.stores.memory_positions import MemoryCheckpoints
from omnirelay.stores.registry import is_journal
from omnirelay.stores.sqlite_positions import SqliteCheckpoints
from omnirelay.transports.client_tls import Tls


class Connecting:
    """What `connect` returns: `async with connect(...)`, or await it and close by hand."""

    def __init__(self, address: "_Embedded | _Remote", *, peer_id: str | None) -> None:
        self._address = address
        self._peer_id = peer_id
        self._relay: Relay | None = None

    async def open(self) -> Relay:
        return Relay(await self._address.link(), peer_id=self._peer_id)

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
    peer_id: str | None = None,
    options: QueueOptions | None = None,
    keep: KeepOptions | None = None,
    require: str | None = None,
    token: str | None = None,
    tls: Tls | None = None,
    retry: float = 30.0,
    positions: str | None = None,
) -> Connecting:
    """`sqlite:///leases.db`, `memory:` or the address of a journal on a server (`postgres://`,
    `redis://`) embeds a queue in this process; `stream://`, `http://` or `grpc://` (and their TLS
    forms) call a node, or the next of several parted by commas.

    Embedded: `options` and `keep` are the queue's own; `require` is the least the journal must
    survive (process_kill, power_loss, node_loss), opening fails if the store does not state it.
    A node: `token` goes as bearer, `tls` names the files; a call that gets no answer is repeated
    for `retry` seconds, which loses and doubles nothing. Followers keep their place in the file
    `positions`; without one, only as long as the relay is open.
    """
    peer_id = None if peer_id is None else named("peer_id", peer_id)
    if is_node(url):
        _refuse(options=options, keep=keep, require=require)
        route = route_to(url, namespace, token=token, peer_id=peer_id, tls=tls)
        remote = _Remote(route, retry=retry, positions=positions)
        return Connecting(remote, peer_id=peer_id)
    _refuse(token=token, tls=tls, positions=positions)
    embedded = _Embedded(url, _checked(namespace, options, keep, require))
    return Connecting(embedded, peer_id=peer_id)


def connect_sync(
    url: str,
    *,
    namespace: str = "resourcelease",
    peer_id: str | None = None,
    options: QueueOptions | None = None,
    keep: KeepOptions | None = None,
    require: str | None = None,
    token: str | None = None,
    tls: Tls | None = None,
    retry: float = 30.0,
    positions: str | None = None,
) -> SyncRelay:
    """The same for threads. Close it, or use it with `with`."""
    peer_id = None if peer_id is None else named("peer_id", peer_id)
    link: Link
    if is_node(url):
        _refuse(options=options, keep=keep, require=require)
        route = route_to(url, namespace, token=token, peer_id=peer_id, tls=tls)
        remote = _Remote(route, retry=retry, positions=positions)
        link = ThreadedLink(remote.make)
    else:
        _refuse(token=token, tls=tls, positions=positions)
        link = BlockingLink(_open(url, _checked(namespace, options, keep, require)))
    return SyncRelay(Relay(link, peer_id=peer_id))


def _refuse(**given: object) -> None:
    for name, value in given.items():
        if value is not None:
            raise InvalidOption(f"{name} does not go with this address")


class _Embedded:
    def __init__(self, url: str, settings: dict[str, Any]) -> None:
        self._url = url
        self._settings = settings

    async def link(self) -> Link:
        opening = _Opening()
        try:
            engine = await asyncio.to_thread(opening.run, self._url, self._settings)
        except asyncio.CancelledError:
            opening.abandon()
            raise
        return EmbeddedLink(engine)


def route_to(
    url: str,
    namespace: str,
    *,
    token: str | None = None,
    peer_id: str | None = None,
    tls: Tls | None = None,
) -> Route:
    """The way to one queue of a node. Raises InvalidOption for what cannot be an address."""
    clock = SystemClock()
    open_outbound = opener(url, clock=clock, headers=_headers(peer_id, token), tls=tls)
    return Route(open_outbound, named("namespace", namespace), clock, chance)


def _headers(peer_id: str | None, token: str | None) -> dict[str, str]:
    """What goes with every call. Wires with headers carry no more than printable ASCII in them."""
    given = {"peer_id": peer_id, "token": token}
    for name, value in given.items():
        if value is not None and not (isinstance(value, str) and _is_plain(value)):
            raise InvalidOption(f"{name} goes as a header, so it must be printable ASCII")
    headers = {"x-peer-id": peer_id, "authorization": None if token is None else f"Bearer {token}"}
    return {name: value for name, value in headers.items() if value is not None}


def _is_plain(text: str) -> bool:
    return text.isascii() and text.isprintable() and text == text.strip()


class _Remote:
    """Nothing is sent before the first call."""

    def __init__(self, route: Route, *, retry: float, positions: str | None) -> None:
        self._route = route
        self._retry_s = milliseconds("retry", retry) / 1000
        self._positions = None if positions is None else named("positions", positions)

    async def link(self) -> Link:
        return self.make()

    def make(self) -> RemoteLink:
        path = self._positions
        return RemoteLink(
            self._route,
            ids=RandomIds(),
            retry_s=self._retry_s,
            positions=MemoryCheckpoints() if path is None else SqliteCheckpoints(path),
        )


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
        raise InvalidOption(
            f"cannot connect to {masked(str(url))!r}: use sqlite:///path, memory: or another "
            f"journal, or the address of a node, such as stream://127.0.0.1:7402"
        )
    return Engine.open(url, **settings)
