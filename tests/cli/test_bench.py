"""`omnirelay bench`: figures of a real node, and nobody's items but its own."""

import msgspec
import pytest

import omnirelay
from omnirelay.cli.bench_load import quantile
from tests.cli.nodes import Running

pytestmark = pytest.mark.timeout(60)
QUICK = ("--callers", "4", "--seconds", "10", "--items", "40")


@pytest.mark.parametrize("wire", ["http", "stream"])
def test_it_says_how_fast_a_node_is_and_leaves_its_queue_empty(node: Running, wire: str) -> None:
    words = ("--namespace", "own", "--url", node.urls[wire], "--json")
    found = node("bench", *QUICK, *words).json()
    assert (found["cycles"], found["callers"], found["batch"]) == (40, 4, 1)
    rate, seconds = found["cyclesPerS"], found["seconds"]
    assert isinstance(rate, float)
    assert isinstance(seconds, float)
    assert rate == pytest.approx(40 / seconds, rel=0.05)
    latency = msgspec.convert(found["latencyMs"], dict[str, dict[str, float]])
    assert list(latency) == ["enqueue", "lease", "complete"]
    assert all(0 < one["p50"] <= one["p99"] for one in latency.values())
    stats = node("stats", "--namespace", "own", "--json").json()
    assert stats["stats"] == {"pendingCount": 0, "activeLeaseCount": 0}


def test_batches_are_as_large_as_asked_and_the_time_is_a_bound_too(node: Running) -> None:
    words = ("--namespace", "own", "--batch", "10", "--json")
    found = node("bench", *QUICK, *words).json()
    assert found["batch"] == 10
    assert isinstance(found["cycles"], int)
    assert 0 < found["cycles"] <= 40
    in_words = node("bench", "--namespace", "own", "--callers", "1", "--seconds", "0.1")
    assert "cycles a second" in in_words.out
    assert [line.split("\t")[0] for line in in_words.out.splitlines()[1:]] == [
        "enqueue",
        "lease",
        "complete",
    ]


def test_a_queue_with_items_of_others_is_refused_and_left_alone(node: Running) -> None:
    with omnirelay.connect_sync(node.urls["stream"], namespace="drained") as relay:
        relay.enqueue("table", "precious")
        refused = node("bench", *QUICK, "--namespace", "drained")
        assert refused.code == 1
        assert "holds 1 items" in refused.complaint
        assert relay.stats().pending_count == 1
        relay.drain()


def test_what_cannot_be_meant_is_refused(node: Running) -> None:
    assert node("bench", "--batch", "10", "--items", "5").code == 1
    assert node("bench", "--url", "http://127.0.0.1:1").code == 3


def test_a_quantile_is_a_time_that_was_taken() -> None:
    times = [number / 1000 for number in range(1, 101)]
    assert (quantile(times, 0.5), quantile(times, 0.99), quantile(times[:1], 0.99)) == (50, 99, 1)
