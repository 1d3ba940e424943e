"""Enqueue: durable when it returns, once per request id, and paused rather than overrun."""

import asyncio
import threading

import pytest

import omnirelay
from omnirelay import Accepted, Backpressure, InvalidArgument, Payload, QueueFull, QueueOptions
from omnirelay.model import limits
from tests.embedded.places import EVERYWHERE, ONE_WIRE, Place
from tests.embedded.signals import Failpoints, a_turn_of_the_loop, committed, counts, kinds

pytestmark = pytest.mark.places(*EVERYWHERE)

FEW = QueueOptions(pending_high=2, pending_low=0)


async def test_an_enqueued_item_is_leased_as_it_was_handed_in(relay: omnirelay.Relay) -> None:
    accepted = await relay.enqueue(
        "table",
        "sales.orders",
        body=b"\x00\xff vacuum",
        partition_key="eu",
        attributes={"reason": "größer"},
        payload_encoding="application/x-plan",
        request_id="r-1",
        lease_duration=5.0,
    )
    assert (accepted.sequence_id, accepted.duplicate) == (1, False)
    lease = await relay.lease()
    assert lease.payload == Payload(
        "table",
        "sales.orders",
        "eu",
        "application/x-plan",
        b"\x00\xff vacuum",
        {"reason": "größer"},
        "r-1",
    )
    assert lease.lease_ms == 5000


async def test_higher_priority_goes_first_and_equals_keep_their_order(
    relay: omnirelay.Relay,
) -> None:
    for name, priority in (("a", 0), ("b", 0), ("c", 5), ("d", -5)):
        await relay.enqueue("table", name, priority=priority)
    leases = await relay.lease_many(4)
    assert [lease.resource_id for lease in leases] == ["c", "a", "b", "d"]


async def test_the_same_request_id_again_is_the_same_item(relay: omnirelay.Relay) -> None:
    first = await relay.enqueue("table", "orders", request_id="r-1")
    again = await relay.enqueue("table", "orders", request_id="r-1")
    assert (again.sequence_id, again.duplicate) == (first.sequence_id, True)
    assert await counts(relay) == (1, 0)


async def test_a_request_id_is_remembered_after_its_work_is_done(relay: omnirelay.Relay) -> None:
    await relay.enqueue("table", "orders", request_id="r-1")
    async with relay.lease():
        pass
    assert (await relay.enqueue("table", "orders", request_id="r-1")).duplicate
    assert await counts(relay) == (0, 0)


async def test_a_request_id_is_remembered_over_a_restart(file_url: str) -> None:
    async with omnirelay.connect(file_url) as relay:
        first = await relay.enqueue("table", "orders", request_id="r-1")
    async with omnirelay.connect(file_url) as relay:
        again = await relay.enqueue("table", "orders", request_id="r-1")
    assert (again.sequence_id, again.duplicate) == (first.sequence_id, True)


async def test_two_at_once_with_one_request_id_make_one_item(relay: omnirelay.Relay) -> None:
    both = await asyncio.gather(
        *(relay.enqueue("table", "orders", request_id="r-1") for _ in range(2))
    )
    assert sorted(accepted.duplicate for accepted in both) == [False, True]
    assert await counts(relay) == (1, 0)


async def test_calls_made_while_a_commit_is_under_way_travel_together(
    relay: omnirelay.Relay, failpoints: Failpoints
) -> None:
    gate = threading.Event()
    failpoints.plans["shard.before_append"] = lambda: gate.wait(10)
    calls = [asyncio.create_task(relay.enqueue("table", f"t{n}")) for n in range(100)]
    await a_turn_of_the_loop()
    gate.set()
    await asyncio.gather(*calls)
    assert failpoints.passed["shard.before_append"] <= 2


async def test_a_refused_item_of_a_batch_stops_no_other(relay: omnirelay.Relay) -> None:
    outcomes = await relay.enqueue_many(
        [
            Payload("table", "a"),
            Payload("table", " "),
            Payload("table", 7),  # type: ignore[arg-type]
            omnirelay.new_item(Payload("table", "b"), priority=9),
            "table/c",  # type: ignore[list-item]
            Payload("table", "d", request_id="r"),
            Payload("table", "e", request_id="r"),
        ]
    )
    assert [type(outcome).__name__ for outcome in outcomes] == [
        "Accepted",
        "InvalidPayload",
        "InvalidPayload",
        "Accepted",
        "InvalidPayload",
        "Accepted",
        "Accepted",
    ]
    assert isinstance(outcomes[6], Accepted)
    assert outcomes[6].duplicate
    assert [lease.resource_id for lease in await relay.lease_many(9)] == ["b", "a", "d"]


async def test_a_batch_longer_than_one_call_may_carry_is_split(relay: omnirelay.Relay) -> None:
    payloads = (Payload("table", f"t{n}") for n in range(limits.BATCH_MAX + 5))
    outcomes = await relay.enqueue_many(payloads)
    assert len(outcomes) == limits.BATCH_MAX + 5
    assert await counts(relay) == (limits.BATCH_MAX + 5, 0)


async def test_a_batch_of_large_bodies_is_split_into_envelopes_that_can_be_stored(
    relay: omnirelay.Relay,
) -> None:
    body = b"x" * limits.BODY_BYTES_MAX
    await relay.enqueue_many([Payload("table", f"t{n}", body=body) for n in range(40)])
    first = await committed(relay, "Enqueue")
    last = await committed(relay, "Enqueue", count=40)
    assert first.timestamp < last.timestamp, "two commits"


async def test_a_dict_changed_after_the_call_changes_nothing_in_the_queue(
    relay: omnirelay.Relay,
) -> None:
    attributes = {"reason": "first"}
    await relay.enqueue("table", "orders", attributes=attributes)
    attributes["reason"] = "second"
    assert (await relay.lease()).payload.attributes == {"reason": "first"}


# -- backpressure -------------------------------------------------------------------------------


async def test_enqueue_waits_under_backpressure_and_goes_on_when_the_queue_is_drained(
    place: Place,
) -> None:
    async with place.connect(options=FEW) as relay:
        await relay.enqueue_many([Payload("table", "a"), Payload("table", "b")])
        assert (await relay.stats()).backpressure
        waiting = asyncio.create_task(relay.enqueue("table", "c"))
        await relay.stats()
        assert not waiting.done()
        leases = await relay.lease_many(2)
        assert (await waiting).sequence_id == 3
        assert len(leases) == 2
        assert not (await relay.stats()).backpressure


async def test_enqueue_gives_up_when_the_backpressure_outlasts_its_wait(place: Place) -> None:
    options = QueueOptions(pending_high=1, pending_low=0, enqueue_wait_ms=30)
    async with place.connect(options=options) as relay:
        await relay.enqueue("table", "a")
        with pytest.raises(Backpressure) as refused:
            await relay.enqueue("table", "b")
        assert refused.value.details == {"pending": 1, "pendingHigh": 1, "pendingLow": 0}
        assert await kinds(relay) == ["Enqueue"]


@pytest.mark.places(*ONE_WIRE)
async def test_those_who_wait_for_room_keep_their_order(place: Place) -> None:
    """Of calls on several connections, as HTTP has them, nobody knows which came first."""
    async with place.connect(options=FEW) as relay:
        await relay.enqueue_many([Payload("table", "a"), Payload("table", "b")])
        waiting = []
        for name in ("c", "d"):
            waiting.append(asyncio.create_task(relay.enqueue("table", name)))
            await relay.stats()
        await relay.drain()
        assert [(await task).sequence_id for task in waiting] == [3, 4]


async def test_work_goes_on_while_enqueues_wait(place: Place) -> None:
    async with place.connect(options=FEW) as relay:
        await relay.enqueue_many([Payload("table", "a"), Payload("table", "b")])
        waiting = asyncio.create_task(relay.enqueue("table", "c"))
        async with relay.lease() as lease:
            assert lease.resource_id == "a"
        async with relay.lease() as lease:
            assert lease.resource_id == "b"
        await waiting


async def test_a_full_queue_refuses_at_once_and_by_name(place: Place) -> None:
    async with place.connect(options=QueueOptions(capacity=1)) as relay:
        await relay.enqueue("table", "a")
        with pytest.raises(QueueFull, match="capacity is 1"):
            await relay.enqueue("table", "b")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("delay", -1),
        ("delay", limits.DELAY_MS_MAX),
        ("priority", limits.PRIORITY_ABS_MAX + 1),
        ("max_attempts", 0),
        ("lease_duration", 0.001),
    ],
)
async def test_a_figure_out_of_bounds_is_refused(
    relay: omnirelay.Relay, name: str, value: float
) -> None:
    with pytest.raises(InvalidArgument):
        await relay.enqueue("table", "orders", **{name: value})  # type: ignore[arg-type]
    assert await counts(relay) == (0, 0)
