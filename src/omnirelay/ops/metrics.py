"""The metrics of CONTRACT §6, as Prometheus reads them.

OpenTelemetry has one provider a process, so there is one here too, for every node in it. What a
node counts anyway is read when somebody asks; nothing is counted twice.
"""

import asyncio
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from opentelemetry import metrics
from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.metrics import CallbackOptions, Observation
from opentelemetry.sdk.metrics import Histogram, MeterProvider
from opentelemetry.sdk.metrics.view import ExplicitBucketHistogramAggregation, View
from opentelemetry.sdk.resources import Resource
from prometheus_client import REGISTRY, generate_latest

from omnirelay.model.ports import Clock
from omnirelay.ops.durations import Durations, ProviderDurations
from omnirelay.ops.instruments import COUNTERS, GAUGES, PEER_GAUGES, Shape, ShardReading
from omnirelay.ops.reading import peers_of, summary_of
from omnirelay.ops.recent import RecentHolders
from omnirelay.ops.view import NodeView
from omnirelay.transports.http_pages import PageReply, PageRequest

if TYPE_CHECKING:
    from omnirelay.rpc.telemetry import Record

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_LONG_SECONDS = (*_SECONDS, 30.0, 60.0, 300.0, 1800.0, 7200.0)

Callback = Callable[[CallbackOptions], Iterable[Observation]]


class OpenMetrics:
    """A node that is shown. `close` it, or its last figures stay on the page."""

    def __init__(self, process: "_Process", node: NodeView) -> None:
        self._process = process
        self._node = node
        self.record = process.record
        """Where the calls' durations go."""

    def close(self) -> None:
        self._process.nodes.pop(id(self._node), None)


def open_metrics(node: NodeView, *, clock: Clock) -> OpenMetrics:
    """Before the dispatcher is built, so that its calls are counted from the first one on. A
    process that has brought a provider of its own keeps it, and the calls' metrics with it."""
    process = _process()
    process.nodes[id(node)] = (node, RecentHolders(clock))
    return OpenMetrics(process, node)


class Exposition:
    """The page `/metrics`."""

    async def show(self, request: PageRequest) -> PageReply:
        body = await asyncio.to_thread(_process().render)
        return PageReply(headers={"content-type": CONTENT_TYPE}, body=body)


class _Process:
    def __init__(self) -> None:
        self.nodes: dict[int, tuple[NodeView, RecentHolders]] = {}
        self._shards: list[ShardReading] = []
        self._peers: dict[str, int] = {}
        self._rendering = threading.Lock()
        provider = MeterProvider(
            metric_readers=[PrometheusMetricReader(disable_target_info=True)],
            resource=Resource.get_empty(),
            views=[_buckets("*.wait", _LONG_SECONDS), _buckets("*.hold", _LONG_SECONDS), *_SHORT],
            shutdown_on_exit=False,
        )
        self.record: Record
        if isinstance(metrics.get_meter_provider(), MeterProvider):
            self.record = ProviderDurations()
        else:
            metrics.set_meter_provider(provider)
            durations = Durations()
            REGISTRY.register(durations)
            self.record = durations
        self._instrument(provider)

    def _instrument(self, provider: MeterProvider) -> None:
        meter = provider.get_meter("omnirelay")
        for shape in GAUGES:
            meter.create_observable_gauge(
                shape.full_name, [self._reads(shape)], shape.unit, shape.description
            )
        for shape in COUNTERS:
            meter.create_observable_counter(
                shape.full_name, [self._reads(shape)], shape.unit, shape.description
            )
        for name, description in PEER_GAUGES.items():
            meter.create_observable_gauge(
                f"omnirelay.peer.lease.{name}", [self._reads_peers(name)], "", description
            )
        meter.create_observable_gauge(
            "omnirelay.node.ready",
            [self._reads_peers("ready")],
            "",
            "1 while the node is ready, 0 while it is not.",
        )

    def _reads(self, shape: Shape) -> Callback:
        def read(options: CallbackOptions) -> Iterator[Observation]:
            for reading in self._shards:
                for value, labels in shape.read(reading):
                    yield Observation(value, {"shard.id": reading.status.shard, **labels})

        return read

    def _reads_peers(self, name: str) -> Callback:
        def read(options: CallbackOptions) -> Iterator[Observation]:
            if name in self._peers:
                yield Observation(self._peers[name])

        return read

    def render(self) -> bytes:
        """One look at every shard, whatever the number of instruments. Blocks."""
        with self._rendering:
            nodes = list(self.nodes.values())
            self._shards = [
                ShardReading(
                    status=shard.status(),
                    tells_depth=shard.tells_depth,
                    counts=shard.counts(),
                    followers=shard.followers(),
                    last_transition=shard.last_transition,
                )
                for node, _ in nodes
                for shard in node.shards.values()
            ]
            self._peers = _peers_of(nodes)
            return generate_latest(REGISTRY)


def _peers_of(nodes: list[tuple[NodeView, RecentHolders]]) -> dict[str, int]:
    if not nodes:
        return {}
    summary = summary_of(
        peer
        for node, recent in nodes
        for peer in peers_of(node, recent, is_wanted=lambda shard: shard.tells_depth)
    )
    return {
        "healthy": summary.eligible_peers,
        "unhealthy": summary.unhealthy_peers,
        "pending_reassignments": summary.pending_reassignments,
        "ready": int(all(node.trouble is None for node, _ in nodes)),
    }


def _buckets(name: str, bounds: tuple[float, ...]) -> View:
    return View(
        instrument_type=Histogram,
        instrument_name=name,
        aggregation=ExplicitBucketHistogramAggregation(bounds),
    )


# The default buckets are meant for milliseconds; ours are seconds.
_SHORT = [
    _buckets(name, _SECONDS)
    for name in ("omnirelay.rpc.duration", "*.journal.commit", "omnirelay.effects.latency")
]

_opening = threading.Lock()
_opened: _Process | None = None


def _process() -> _Process:
    global _opened
    with _opening:
        if _opened is None:
            _opened = _Process()
        return _opened
