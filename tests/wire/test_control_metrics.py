"""`/metrics`, read as Prometheus reads it."""

from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from omnirelay.model.ports import SystemClock
from omnirelay.node.node import Node
from omnirelay.ops.metrics import open_metrics
from tests.wire.control_node import HOSTILE, ask, call, enqueue, node

ALLOWED_LABELS = {
    "shard_id",
    "rpc_service",
    "rpc_procedure",
    "rpc_transport",
    "outcome",
    "state",
    "le",
    "otel_scope_name",
    "otel_scope_version",
    "otel_scope_schema_url",
}


async def scrape(opened: Node) -> dict[str, Metric]:
    answer = await ask(opened, "GET", "/metrics")
    assert answer.status == 200
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    families = list(text_string_to_metric_families(answer.body.decode()))
    assert len({family.name for family in families}) == len(families), "no family comes twice"
    return {family.name: family for family in families}


def value(families: dict[str, Metric], name: str, shard: str | None, **labels: str) -> float:
    wanted = {**labels, **({"shard_id": shard} if shard else {})}
    (sample,) = [
        sample
        for sample in families[name].samples
        if wanted.items() <= sample.labels.items() and not sample.name.endswith("_created")
    ]
    return sample.value


async def test_a_queue_is_counted_as_it_is() -> None:
    async with node() as opened:
        shown = open_metrics(opened, clock=SystemClock())
        for name in ("a", "b", "c", HOSTILE):
            await enqueue(opened, name)
        first = await call(opened, "lease", {"peerId": HOSTILE})
        await call(opened, "complete", {"ownershipToken": first["ownershipToken"]})
        second = await call(opened, "lease", {"peerId": HOSTILE})
        failed = {"ownershipToken": second["ownershipToken"], "requeue": False, "reason": HOSTILE}
        await call(opened, "fail", failed)
        await call(opened, "lease", {"peerId": "w"})
        families = await scrape(opened)
        shown.close()
    got = {
        name: value(families, f"omnirelay_resourcelease_{name}", "resourcelease")
        for name in (
            "pending",
            "active",
            "delayed",
            "dead_letters",
            "enqueued",
            "granted",
            "completed",
            "failed",
            "expired",
            "dead_lettered",
            "ready",
            "epoch",
            "backpressure_active",
        )
    }
    assert got == {
        "pending": 1,
        "active": 1,
        "delayed": 0,
        "dead_letters": 1,
        "enqueued": 4,
        "granted": 3,
        "completed": 1,
        "failed": 1,
        "expired": 0,
        "dead_lettered": 1,
        "ready": 1,
        "epoch": 1,
        "backpressure_active": 0,
    }
    assert families["omnirelay_resourcelease_pending"].type == "gauge"
    assert families["omnirelay_resourcelease_enqueued"].type == "counter"
    assert value(families, "omnirelay_peer_lease_healthy", None) == 1
    assert value(families, "omnirelay_peer_lease_assignments", "resourcelease") == 3
    assert value(families, "omnirelay_node_ready", None) == 1


async def test_calls_are_timed_in_buckets_of_seconds() -> None:
    async with node() as opened:
        shown = open_metrics(opened, clock=SystemClock())
        await enqueue(opened, "a")
        families = await scrape(opened)
        shown.close()
    duration = families["omnirelay_rpc_duration_seconds"]
    enqueues = [s for s in duration.samples if s.labels.get("rpc_procedure") == "enqueue"]
    assert any(s.name.endswith("_count") and s.value >= 1 for s in enqueues)
    bounds = {float(s.labels["le"]) for s in enqueues if "le" in s.labels}
    assert min(bounds) < 0.001
    assert sorted(bounds)[-2] == 10


async def test_labels_are_few_and_nothing_a_caller_names_is_one() -> None:
    async with node() as opened:
        shown = open_metrics(opened, clock=SystemClock())
        await enqueue(opened, HOSTILE)
        await call(opened, "lease", {"peerId": HOSTILE})
        await ask(opened, "POST", "/v1/resourcelease/no%22such%0Averb", b"{}")
        families = await scrape(opened)
        shown.close()
    ours = [family for name, family in families.items() if name.startswith("omnirelay")]
    samples = [sample for family in ours for sample in family.samples]
    assert {name for sample in samples for name in sample.labels} <= ALLOWED_LABELS
    texts = {text for sample in samples for text in sample.labels.values()}
    assert not any("<" in text or "such" in text for text in texts)


async def test_a_node_that_closed_its_metrics_is_shown_no_longer() -> None:
    async with node(namespaces=("resourcelease.closed",)) as opened:
        shown = open_metrics(opened, clock=SystemClock())
        before = await scrape(opened)
        shown.close()
        after = await scrape(opened)
    assert value(before, "omnirelay_resourcelease_pending", "resourcelease.closed") == 0
    left = after.get("omnirelay_resourcelease_pending")
    names = {sample.labels["shard_id"] for sample in left.samples} if left else set()
    assert "resourcelease.closed" not in names
