"""What a node shows of itself over HTTP."""

import asyncio
import logging
from collections.abc import Iterator
from urllib.parse import quote

import msgspec
import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import omnirelay
from omnirelay.lease.options import QueueOptions
from tests.wire.control_node import CONTROL, HOSTILE, JSON, ask, call, enqueue, get, node


@pytest.fixture(autouse=True)
def _level() -> Iterator[None]:
    logger = logging.getLogger("omnirelay")
    before = logger.level
    yield
    logger.setLevel(before)


async def test_a_node_that_serves_is_healthy_and_ready() -> None:
    async with node() as opened:
        health, ready = [await ask(opened, "GET", path) for path in ("/healthz", "/readyz")]
        head = await ask(opened, "HEAD", "/readyz")
    assert (health.status, health.body) == (200, b"ok\n")
    assert (ready.status, ready.body) == (200, b"ready\n")
    assert (head.status, head.body) == (200, b"")
    assert ready.headers["cache-control"] == "no-store"


async def test_a_draining_node_is_healthy_not_ready_and_refuses_work_until_it_resumes() -> None:
    async with node() as opened:
        await enqueue(opened, "a")
        lease = await call(opened, "lease", {"peerId": "w"})
        before = await get(opened, f"{CONTROL}/upgrade")
        drained = await ask(opened, "POST", f"{CONTROL}/upgrade/drain", content_type=JSON)
        assert msgspec.json.decode(drained.body)["state"] == "draining"
        ready = await ask(opened, "GET", "/readyz")
        assert (ready.status, ready.body) == (503, b"not ready: the node is draining\n")
        assert (await ask(opened, "GET", "/healthz")).status == 200
        payload = {"payload": {"resourceType": "table", "resourceId": "b"}}
        refused = await ask(
            opened, "POST", "/v1/resourcelease/enqueue", msgspec.json.encode(payload)
        )
        assert refused.status == 503
        assert not (await get(opened, f"{CONTROL}/upgrade"))["safeToStop"]
        await call(opened, "complete", {"ownershipToken": lease["ownershipToken"]})
        assert (await get(opened, f"{CONTROL}/upgrade"))["safeToStop"]
        resumed = await ask(opened, "POST", f"{CONTROL}/upgrade/resume", content_type=JSON)
        assert msgspec.json.decode(resumed.body)["state"] == "active"
        assert (await ask(opened, "GET", "/readyz")).status == 200
        await enqueue(opened, "b")
    assert before == {
        "nodeId": "node-1",
        "state": "active",
        "activeLeaseCount": 1,
        "pendingCount": 0,
        "safeToStop": False,
    }


async def test_introspection_names_the_node_its_namespaces_and_procedures() -> None:
    async with node(namespaces=("resourcelease.users",)) as opened:
        shown = await get(opened, "/omnirelay/introspect")
        urls = opened.urls
    assert (shown["nodeId"], shown["version"]) == ("node-1", omnirelay.__version__)
    assert shown["urls"] == urls
    assert shown["isReady"]
    assert shown["uptimeMs"] >= 0
    assert sorted(shown["namespaces"]) == ["resourcelease", "resourcelease.users"]
    assert shown["namespaces"]["resourcelease"]["leader"] == "node-1"
    assert "resourcelease::enqueue" in shown["procedures"]
    assert "resourcelease.users::lease" in shown["procedures"]


async def test_shards_show_their_state_and_what_they_have_committed() -> None:
    async with node() as opened:
        for name in ("a", "b", "c"):
            await enqueue(opened, name)
        await call(opened, "lease", {"peerId": "w"})
        (shard,) = (await get(opened, f"{CONTROL}/shards"))["shards"]
    assert (shard["shard"], shard["isReady"], shard["epoch"]) == ("resourcelease", True, 1)
    assert (shard["pendingCount"], shard["activeLeaseCount"]) == (2, 1)
    assert (shard["counts"]["enqueued"], shard["counts"]["granted"]) == (3, 1)


async def test_peers_are_merged_over_shards() -> None:
    async with node(namespaces=("resourcelease.users",)) as opened:
        for namespace in ("resourcelease", "resourcelease.users"):
            for name in ("a", "b"):
                await enqueue(opened, name, namespace)
            await call(opened, "lease", {"peerId": "both"}, namespace)
        await call(opened, "lease", {"peerId": "one"})
        shown = await get(opened, f"{CONTROL}/peers")
        first_only = await get(opened, f"{CONTROL}/peers?maxItems=1")
    assert [(peer["peerId"], peer["activeLeases"], peer["shards"]) for peer in shown["peers"]] == [
        ("both", 2, ["resourcelease", "resourcelease.users"]),
        ("one", 1, ["resourcelease"]),
    ]
    assert [peer["peerId"] for peer in first_only["peers"]] == ["both"]
    assert first_only["peerCount"] == 2


@pytest.mark.parametrize("text", ["0", "-1", "1001", "ten", "1e3", "", "9" * 400, "٣"])
async def test_a_bad_number_of_items_is_refused(text: str) -> None:
    async with node() as opened:
        answer = await ask(opened, "GET", f"{CONTROL}/peers?maxItems={quote(text)}")
    assert answer.status == 400
    assert answer.json()["code"] == "error.invalid_argument"


async def test_a_holder_whose_lease_runs_is_healthy_and_hostile_names_are_only_text() -> None:
    async with node() as opened:
        await enqueue(opened, HOSTILE)
        await call(opened, "lease", {"peerId": HOSTILE})
        answer = await ask(opened, "GET", f"{CONTROL}/lease-health")
    assert answer.headers["content-type"] == JSON
    assert answer.headers["x-content-type-options"] == "nosniff"
    shown = msgspec.json.decode(answer.body)
    assert shown["summary"] == {
        "eligiblePeers": 1,
        "unhealthyPeers": 0,
        "pendingReassignments": 0,
    }
    (peer,) = shown["peers"]
    assert (peer["peerId"], peer["isHealthy"]) == (HOSTILE, True)
    assert 0 < peer["nextExpiryMs"] <= 30_000


async def test_an_overdue_holder_is_unhealthy_until_its_lease_is_taken_back() -> None:
    # A minute may pass before the expiry is written, so the lease stands there overdue meanwhile.
    options = QueueOptions(lease_duration_ms=100, sweep_interval_ms=60_000)
    async with node(options=options) as opened:
        await enqueue(opened, "a")
        await call(opened, "lease", {"peerId": "gone"})
        while True:
            shown = await get(opened, f"{CONTROL}/lease-health")
            if shown["summary"]["unhealthyPeers"]:
                break
            await asyncio.sleep(0.01)
    assert shown["summary"] == {
        "eligiblePeers": 0,
        "unhealthyPeers": 1,
        "pendingReassignments": 1,
    }
    assert shown["peers"][0]["nextExpiryMs"] <= 0


async def test_the_checkpoint_page_shows_how_far_the_journal_and_its_sinks_are() -> None:
    async with node() as opened:
        await enqueue(opened, "a")
        shown = await get(opened, f"{CONTROL}/replication/checkpoint")
    assert shown == {
        "shards": [
            {
                "shard": "resourcelease",
                "lastSequence": 2,
                "epoch": 1,
                "leader": "node-1",
                "sinks": [],
            }
        ]
    }


async def test_the_log_level_is_shown_and_changed() -> None:
    async with node() as opened:
        path = f"{CONTROL}/logging"
        changed = await ask(opened, "POST", path, b'{"level":"DEBUG"}', content_type=JSON)
        assert (changed.status, changed.body) == (200, b'{"level":"debug"}')
        assert await get(opened, path) == {"level": "debug"}
    assert logging.getLogger("omnirelay").level == logging.DEBUG


async def test_the_sampling_probability_is_shown_and_changed() -> None:
    async with node() as opened:
        path = f"{CONTROL}/tracing"
        assert await get(opened, path) == {"samplingProbability": 1.0}
        body = b'{"samplingProbability":0.25}'
        changed = await ask(opened, "POST", path, body, content_type=f"{JSON}; charset=utf-8")
        assert changed.status == 200
        assert await get(opened, path) == {"samplingProbability": 0.25}


async def test_the_spans_of_a_node_follow_the_sampling_probability(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr("omnirelay.rpc.telemetry.trace.get_tracer", provider.get_tracer)
    counts = []
    async with node() as opened:
        for probability in (1, 0, 1):
            body = f'{{"samplingProbability":{probability}}}'.encode()
            await ask(opened, "POST", f"{CONTROL}/tracing", body, content_type=JSON)
            for _ in range(5):
                await call(opened, "stats", {})
            counts.append(len(exporter.get_finished_spans()))
            exporter.clear()
    provider.shutdown()
    assert counts == [5, 0, 5]


BAD_CHANGES = [
    ("logging", b'{"level":"loud"}'),
    ("logging", b'{"level":""}'),
    ("logging", b'{"level":10}'),
    ("logging", b'{"level":null}'),
    ("logging", b'{"level":"info","logger":"root"}'),
    ("logging", b"{}"),
    ("logging", b""),
    ("logging", b"[]"),
    ("logging", b"{"),
    ("logging", b"\xff\xfe"),
    ("logging", b"[" * 100_000),
    ("tracing", b'{"samplingProbability":1.01}'),
    ("tracing", b'{"samplingProbability":-0.1}'),
    ("tracing", b'{"samplingProbability":1e999}'),
    ("tracing", b'{"samplingProbability":NaN}'),
    ("tracing", b'{"samplingProbability":"half"}'),
    ("tracing", b'{"samplingProbability":true}'),
    ("tracing", b"{}"),
]


@pytest.mark.parametrize(("page", "body"), BAD_CHANGES)
async def test_a_bad_change_is_refused_and_changes_nothing(page: str, body: bytes) -> None:
    async with node() as opened:
        before = await get(opened, f"{CONTROL}/{page}")
        answer = await ask(opened, "POST", f"{CONTROL}/{page}", body, content_type=JSON)
        assert answer.status == 400
        assert answer.json()["status"] == "INVALID_ARGUMENT"
        assert await get(opened, f"{CONTROL}/{page}") == before


async def test_the_overview_holds_all_that_the_dashboard_shows() -> None:
    async with node() as opened:
        for name in ("a", HOSTILE):
            await enqueue(opened, name)
        await call(opened, "lease", {"peerId": HOSTILE})
        shown = await get(opened, f"{CONTROL}/overview")
    assert shown["nodeId"] == "node-1"
    (report,) = shown["shards"]
    assert report["status"]["pendingCount"] == 1
    assert report["counts"]["enqueued"] == 2
    assert [holder["peerId"] for holder in report["holders"]] == [HOSTILE]
    assert report["holderCount"] == 1
    assert report["followers"] == []
