"""The control plane: every page a node has beside its calls, by path."""

import asyncio
import platform
from typing import Any

import msgspec

import omnirelay
from omnirelay.identity.settings import Identity
from omnirelay.model import limits
from omnirelay.model.errors import InvalidArgument
from omnirelay.model.ports import Clock
from omnirelay.ops.backpressure import Backpressure
from omnirelay.ops.dashboard import dashboard_pages
from omnirelay.ops.door import Door
from omnirelay.ops.health import Health
from omnirelay.ops.metrics import Exposition
from omnirelay.ops.reading import (
    LeaseHealth,
    ShardReport,
    checkpoint_of,
    lease_health_of,
    peers_of,
    report_of,
    row_of,
)
from omnirelay.ops.recent import RecentHolders
from omnirelay.ops.switches import Switches
from omnirelay.ops.tracing import Sampling
from omnirelay.ops.view import NodeRow, NodeView, ShardView
from omnirelay.transports.http_pages import Page, PageRequest

_HOLDERS = 50
"""Holders a shard that the dashboard lists."""
_PREFIX = "/omnirelay/control"


class Overview(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """All the dashboard shows, as of one moment."""

    node_id: str
    version: str
    uptime_ms: int
    at_ms: int
    urls: dict[str, str]
    is_draining: bool
    shards: list[ShardReport]
    trouble: str | None = None


class Introspection(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    node_id: str
    version: str
    python: str
    uptime_ms: int
    urls: dict[str, str]
    is_draining: bool
    is_ready: bool
    namespaces: dict[str, Any]
    """Any: JSON of each one's status."""
    procedures: list[str]
    nodes: list[NodeRow]
    """The others of its mesh."""
    trouble: str | None = None


class Windows:
    """Reading is done off the loop: the status of a follower may read its journal."""

    def __init__(self, node: NodeView, clock: Clock) -> None:
        self._node = node
        self._clock = clock
        self._since_ms = clock.monotonic_ms()
        self._recent = RecentHolders(clock)

    @property
    def _uptime_ms(self) -> int:
        return self._clock.monotonic_ms() - self._since_ms

    async def introspect(self, request: PageRequest) -> Introspection:
        node = self._node
        rows = await asyncio.to_thread(
            lambda: {name: msgspec.to_builtins(shard.status()) for name, shard in _shards(node)}
        )
        return Introspection(
            node_id=node.node_id,
            version=omnirelay.__version__,
            python=platform.python_version(),
            uptime_ms=self._uptime_ms,
            urls=dict(node.urls),
            is_draining=node.is_draining,
            is_ready=node.trouble is None,
            namespaces=rows,
            procedures=sorted(node.procedures),
            nodes=list(node.others),
            trouble=node.trouble,
        )

    async def overview(self, request: PageRequest) -> Overview:
        node = self._node
        reports = await asyncio.to_thread(self._reports)
        return Overview(
            node_id=node.node_id,
            version=omnirelay.__version__,
            uptime_ms=self._uptime_ms,
            at_ms=self._clock.wall_ms(),
            urls=dict(node.urls),
            is_draining=node.is_draining,
            shards=reports,
            trouble=node.trouble,
        )

    def _reports(self) -> list[ShardReport]:
        return [
            report_of(name, shard, self._recent, holders=_HOLDERS)
            for name, shard in _shards(self._node)
        ]

    async def shards(self, request: PageRequest) -> dict[str, Any]:
        rows = await asyncio.to_thread(lambda: [row_of(shard) for _, shard in _shards(self._node)])
        return {"shards": rows}

    async def peers(self, request: PageRequest) -> dict[str, Any]:
        limit = _limit_of(request)
        peers = await asyncio.to_thread(peers_of, self._node, self._recent)
        nodes = list(self._node.others)
        return {"peers": peers[:limit], "peerCount": len(peers), "nodes": nodes}

    async def lease_health(self, request: PageRequest) -> LeaseHealth:
        limit = _limit_of(request)
        return await asyncio.to_thread(
            lambda: lease_health_of(self._node, self._recent, limit=limit)
        )

    async def checkpoint(self, request: PageRequest) -> dict[str, Any]:
        rows = await asyncio.to_thread(
            lambda: [checkpoint_of(shard) for _, shard in _shards(self._node)]
        )
        return {"shards": rows}


def _shards(node: NodeView) -> list[tuple[str, ShardView]]:
    return sorted(node.shards.items())


def _limit_of(request: PageRequest) -> int:
    text = request.query.get("maxItems")
    if text is None:
        return limits.BATCH_MAX
    if not text.isascii() or not text.isdigit() or not 1 <= int(text[:9]) <= limits.BATCH_MAX:
        raise InvalidArgument(f"maxItems is {text[:40]!r}, must be from 1 to {limits.BATCH_MAX}")
    return int(text)


def control_pages(
    node: NodeView, identity: Identity, *, clock: Clock, sampling: Sampling | None = None
) -> dict[str, Page]:
    """`sampling` is what the tracing middleware asks; without it the page changes nothing."""
    door = Door(identity, clock)
    health = Health(node)
    windows = Windows(node, clock)
    pressure = Backpressure(node)
    switches = Switches(node, sampling or Sampling())
    return {
        "/healthz": door.open_to_all(health.healthz),
        "/readyz": door.open_to_all(health.readyz),
        "/metrics": door.reads(Exposition().show),
        "/omnirelay/introspect": door.reads(windows.introspect),
        f"{_PREFIX}/overview": door.reads(windows.overview),
        f"{_PREFIX}/shards": door.reads(windows.shards),
        f"{_PREFIX}/peers": door.reads(windows.peers),
        f"{_PREFIX}/lease-health": door.reads(windows.lease_health),
        f"{_PREFIX}/backpressure": door.reads(pressure.show),
        f"{_PREFIX}/backpressure/stream": door.reads(pressure.stream),
        f"{_PREFIX}/replication/checkpoint": door.reads(windows.checkpoint),
        f"{_PREFIX}/logging": door.changes(switches.change_level, show=switches.show_level),
        f"{_PREFIX}/tracing": door.changes(switches.change_tracing, show=switches.show_tracing),
        f"{_PREFIX}/upgrade": door.reads(switches.show_upgrade),
        f"{_PREFIX}/upgrade/drain": door.changes(switches.drain),
        f"{_PREFIX}/upgrade/resume": door.changes(switches.resume),
        **{path: door.reads(show) for path, show in dashboard_pages().items()},
    }
