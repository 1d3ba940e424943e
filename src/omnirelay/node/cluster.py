"""A node among others: it finds them, passes calls on to owners, and hands shards over."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

from omnirelay import __version__
from omnirelay.identity.settings import IdentitySettings
from omnirelay.identity.tls import TlsSettings
from omnirelay.lease.records import FORMAT
from omnirelay.mesh.forwarding import Forwarding
from omnirelay.mesh.neighbours import (
    HelloRequest,
    HelloResponse,
    Known,
    Neighbour,
    Neighbours,
    TakeOverRequest,
    TakeOverResponse,
    hand_over,
)
from omnirelay.mesh.shard import Shard
from omnirelay.model.errors import OmniRelayError, Unavailable
from omnirelay.model.ports import Clock
from omnirelay.node.settings import MeshSettings
from omnirelay.ops.view import NodeRow
from omnirelay.rpc.meta import RequestMeta
from omnirelay.rpc.procedure import Registry
from omnirelay.rpc.transport import Outbound
from omnirelay.transports.client_tls import ContextSource, Tls, TlsFiles
from omnirelay.transports.stream_outbound import StreamOutbound

log = logging.getLogger(__name__)

_HAND_OVER_MS = 2_000
_TRIES = 3
"""How often a node that leaves tries to give a shard away; a busy heir may be slow once."""
_LOOK_S = 0.005


class Cluster:
    """`shards` are those that may have rivals, by namespace."""

    def __init__(
        self,
        settings: MeshSettings,
        node_id: str,
        shards: Mapping[str, Shard],
        *,
        identity: IdentitySettings,
        clock: Clock,
        is_apart: Callable[[], bool] = lambda: False,
    ) -> None:
        """`is_apart` says that this node stands by: it neither owns nor passes on."""
        self.url = ""
        self._is_apart = is_apart
        self._settings = settings
        self._node_id = node_id
        self._shards = shards
        self._clock = clock
        self._tls = self._own_tls(identity.tls)
        self._ttl_ms = round(settings.epoch_s * 1000)
        self._handing = asyncio.Lock()
        self.neighbours = Neighbours(
            node_id,
            settings.peers,
            self._reach,
            namespaces=list(shards),
            clock=clock,
            ttl_ms=self._ttl_ms,
            own=self._known,
        )
        self.forwarding = Forwarding(
            shards,
            self._reach,
            clock=clock,
            patience_ms=3 * self._ttl_ms + 1_000,
            hearsay=self._hearsay,
            is_apart=is_apart,
        )

    def _own_tls(self, own: TlsSettings | None) -> ContextSource | None:
        """Other nodes are shown the certificate that callers are shown."""
        if own is None:
            return None
        files = Tls(
            ca_file=own.client_ca_file,
            cert_file=own.cert_file,
            key_file=own.key_file,
            server_id=self._settings.server_id,
        )
        return TlsFiles(files, self._clock).context

    def _reach(self, url: str) -> Outbound:
        tls = self._tls if urlsplit(url).scheme == "streams" else None
        seconds = max(1.0, self._settings.epoch_s)
        return StreamOutbound(
            url, clock=self._clock, tls=tls, connect_s=seconds, silence_s=2 * seconds
        )

    def _hearsay(self, namespace: str) -> str:
        """Where the newest owner that the others know of takes calls, if it is one of them."""
        live = [one for one in self.neighbours.live() if namespace in one.shards]
        newest = max((one.shards[namespace] for one in live), key=_epoch, default=None)
        if newest is None or newest.epoch < self._shards[namespace].state.epoch:
            return ""
        return next((one.url for one in live if one.node_id == newest.owner), "")

    def serve_at(self, url: str) -> None:
        """The doors are open: others find this node at `url` unless it is told another."""
        self.url = self.forwarding.own_url = self._settings.advertise or url
        for shard in self._shards.values():
            shard.serve_at(self.url)

    async def run(self) -> None:
        """Until it is cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self.neighbours.run())
                group.create_task(self.forwarding.passings.run())
                group.create_task(self._balance())
        finally:
            await self.forwarding.stop()

    # -- what others ask ------------------------------------------------------------------------

    def register(self, registry: Registry) -> None:
        for namespace in self._shards:
            registry.unary(
                f"{namespace}::hello",
                self._hello,
                HelloRequest,
                HelloResponse,
                urgent=True,
                idempotent=True,
                summary="Which node this is and what it knows of its queues; for other nodes.",
            )
            registry.unary(
                f"{namespace}::takeOver",
                self._take_over,
                TakeOverRequest,
                TakeOverResponse,
                urgent=True,
                summary="Own the queue now; asked by the node that owns it.",
            )

    async def _hello(self, meta: RequestMeta, request: HelloRequest) -> HelloResponse:
        is_leaving = self.neighbours.is_leaving or self._is_apart()
        known = self._known()
        return HelloResponse(self._node_id, self.url, __version__, known, FORMAT, is_leaving)

    def _known(self) -> dict[str, Known]:
        return {
            name: Known(shard.state.node, shard.state.epoch, shard.state.sequence, shard.is_hot)
            for name, shard in self._shards.items()
        }

    async def _take_over(self, meta: RequestMeta, request: TakeOverRequest) -> TakeOverResponse:
        shard = self._shards[meta.namespace]
        if self.neighbours.is_leaving:
            raise Unavailable(f"node {self._node_id} is leaving itself")
        if self._is_apart():
            raise Unavailable(f"node {self._node_id} stands by")
        until = self._clock.monotonic_ms() + min(request.wait_ms, 2 * _HAND_OVER_MS)
        shard.take_over()
        try:
            while not shard.is_served_here:
                if self._clock.monotonic_ms() > until:
                    raise Unavailable(f"node {self._node_id} could not take over in time")
                await asyncio.sleep(_LOOK_S)
        finally:
            shard.take_over(is_wanted=False)
        return TakeOverResponse(shard.state.epoch)

    # -- what is shown --------------------------------------------------------------------------

    def rows(self, shard: str | None = None) -> list[NodeRow]:
        """The other nodes; as far as they serve `shard`, if it is given."""
        own = {} if shard is None else {"last": self._shards[shard].state.sequence}
        return [
            self._row(one, shard, **own)
            for one in self.neighbours.all
            if one.node_id != self._node_id and (shard is None or shard in one.shards)
        ]

    def _row(self, one: Neighbour, shard: str | None, last: int = 0) -> NodeRow:
        more: dict[str, Any] = {}  # Any: fields of the row, which are typed themselves
        if shard is not None:
            known = one.shards[shard]
            more = {
                "sequence": known.last_sequence,
                "sequence_lag": max(0, last - known.last_sequence),
                "lag_ms": self.neighbours.lag_ms(one, shard),
            }
        heard_ms = one.heard_ms
        return NodeRow(
            node_id=one.node_id or "",
            url=one.url,
            version=one.version,
            is_answering=self.neighbours.is_answering(one),
            is_leaving=one.is_leaving,
            heard_ms=None if heard_ms is None else self._clock.monotonic_ms() - heard_ms,
            owns=sorted(name for name, known in one.shards.items() if known.owner == one.node_id),
            **more,
        )

    # -- moving shards ------------------------------------------------------------------------

    async def _balance(self) -> None:
        """Give shards to the nodes that should have them, one at a time. A node must have answered
        for a while first: one that comes and goes is worse than one too few."""
        settled_ms = 3 * self._ttl_ms
        while True:
            await asyncio.sleep(self._settings.epoch_s)
            if self.neighbours.is_leaving:
                continue
            for namespace, shard in self._shards.items():
                heir = self.neighbours.heir(namespace, settled_ms=settled_ms)
                if heir is not None and shard.is_served_here:
                    await self._give(namespace, heir)
                    break

    async def leave(self) -> None:
        """Give every shard away that this node owns, to whoever is there."""
        self.neighbours.is_leaving = True
        for namespace, shard in self._shards.items():
            for _ in range(_TRIES):
                if not shard.is_served_here:
                    break
                await self.neighbours.look_around()
                heir = self.neighbours.heir(namespace)
                if heir is None or await self._give(namespace, heir):
                    break

    def stay(self) -> None:
        self.neighbours.is_leaving = False

    async def _give(self, namespace: str, heir: Neighbour) -> bool:
        """What comes in meanwhile waits, and then goes to the new owner, if it has taken it."""
        shard = self._shards[namespace]
        async with self._handing:
            if not shard.is_served_here:
                return True  # it went while another was handed over
            shard.stand_aside(_HAND_OVER_MS)
            try:
                epoch = await hand_over(heir, namespace, self._clock, _HAND_OVER_MS)
                heir.begins(namespace, epoch)
                log.info("%s went to node %s, epoch %d", namespace, heir.node_id, epoch)
                await self._until_replaced(shard)
            except OmniRelayError as error:
                heir.settle_again()
                log.warning("%s was not handed over: %s", namespace, error.message)
                shard.stand_aside(0)  # its callers have waited long enough
                return False
        return True

    async def _until_replaced(self, shard: Shard) -> None:
        """It sees in a moment that another has begun; before, it would be given away again."""
        for _ in range(_HAND_OVER_MS // 10):
            if not shard.is_served_here:
                return
            await asyncio.sleep(_LOOK_S)


def _epoch(known: Known) -> int:
    return known.epoch
