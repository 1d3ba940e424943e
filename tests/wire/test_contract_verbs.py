"""Every verb of a real node over every wire: what is promised of it, and what it refuses."""

from collections.abc import AsyncIterator

import pytest

from omnirelay.lease.answers import LeaseResponse
from omnirelay.lease.options import QueueOptions
from omnirelay.mesh import wire
from omnirelay.model.errors import (
    Backpressure,
    DeadlineExceeded,
    InvalidArgument,
    InvalidPayload,
    OmniRelayError,
    QueueFull,
    SequenceConflict,
    StaleToken,
    TooLarge,
    Unimplemented,
    UnknownToken,
)
from omnirelay.model.items import Payload, PendingItem, Token, to_time
from omnirelay.node.node import Node
from omnirelay.rpc.meta import Request, RequestMeta
from tests.wire.real_node import CLOCK, NAMESPACE, WIRES, Caller, caller, node

OPTIONS = QueueOptions(requeue_delay_ms=0, max_attempts=2, capacity=20, enqueue_wait_ms=0)
NOBODYS = Token(999, 1, "00000000-0000-0000-0000-000000000009")


@pytest.fixture
async def opened() -> AsyncIterator[Node]:
    async with node(OPTIONS) as one:
        yield one


@pytest.fixture(params=WIRES)
async def call(opened: Node, request: pytest.FixtureRequest) -> AsyncIterator[Caller]:
    async with caller(opened, request.param) as one:
        yield one


def item(name: str) -> wire.EnqueueRequest:
    return wire.EnqueueRequest(payload=Payload("table", name))


def held(lease: LeaseResponse) -> wire.TokenRequest:
    return wire.TokenRequest(lease.token)


async def test_a_whole_life_of_an_item(call: Caller) -> None:
    put = await call(
        "enqueue",
        wire.EnqueueRequest(
            payload=Payload("table", "orders", "eu", "text/plain", b"vacuum", {"who": "ops"}, "r1"),
            priority=3,
            lease_duration_ms=9_000,
        ),
    )
    assert (put.sequence_id, put.duplicate) == (1, False)
    assert (put.stats.pending_count, put.stats.active_lease_count) == (1, 0)
    lease = await call.lease(peer_id="w-1")
    assert lease.payload == Payload(
        "table", "orders", "eu", "text/plain", b"vacuum", {"who": "ops"}, "r1"
    )
    assert (lease.sequence_id, lease.attempt, lease.owner_peer_id) == (1, 1, "w-1")
    assert (lease.lease_duration_ms, lease.heartbeat_interval_ms) == (9_000, 3_000)
    assert lease.token.fence == lease.fence > 0
    assert lease.last_error is None
    assert lease.expires_at > lease.enqueued_at
    beat = await call("heartbeat", held(lease))
    assert beat.success
    assert beat.expires_at >= lease.expires_at
    assert 0 < beat.remaining_ms <= 9_000
    assert (await call("complete", held(lease))).success
    stats = await call.stats()
    assert (stats.stats.pending_count, stats.stats.active_lease_count) == (0, 0)
    assert (stats.leader, stats.epoch, stats.backpressure) == ("node-1", 1, False)
    assert (stats.dead_letter_count, stats.delayed_count) == (0, 0)
    assert stats.oldest_pending_age_ms is None
    assert stats.last_sequence == 5


async def test_a_repeat_gets_the_same_answer(call: Caller) -> None:
    first = await call.enqueue("a", request_id="r-1")
    again = await call.enqueue("a", request_id="r-1")
    assert (first.sequence_id, first.duplicate) == (again.sequence_id, False)
    assert again.duplicate
    lease = await call.lease(request_id="l-1")
    assert (await call.lease(request_id="l-1")).token == lease.token
    assert (await call("complete", held(lease))).success
    assert (await call("complete", held(lease))).success
    with pytest.raises(StaleToken):
        await call.lease(request_id="l-1")


async def test_a_batch_is_answered_item_by_item(call: Caller) -> None:
    items = (item("a"), item(" "), wire.EnqueueRequest(), item("b"))
    put = await call("enqueueBatch", wire.EnqueueBatchRequest(items))
    assert [result.sequence_id for result in put.results] == [1, None, None, 2]
    assert put.results[1].error.code == "resourcelease.payload.resource_id_required"
    assert put.results[1].error.status == "INVALID_ARGUMENT"
    assert put.results[2].error.code == "resourcelease.payload.required"
    assert put.stats.pending_count == 2
    leases = (await call("leaseBatch", wire.LeaseBatchRequest(max_items=5))).leases
    assert [lease.payload.resource_id for lease in leases] == ["a", "b"]
    assert (await call("leaseBatch", wire.LeaseBatchRequest(max_items=5))).leases == ()
    tokens = wire.TokenBatchRequest((leases[0].token, NOBODYS))
    beats = (await call("heartbeatBatch", tokens)).results
    done = (await call("completeBatch", tokens)).results
    for results in (beats, done):
        assert [result.success for result in results] == [True, False]
        assert results[1].error_code == "error.resourcelease.unknown_token"
        assert results[1].error_status == "NOT_FOUND"
        assert results[1].error_message
    assert beats[0].remaining_ms > 0
    empty = await call("enqueueBatch", wire.EnqueueBatchRequest(()))
    assert (empty.results, empty.stats.active_lease_count) == ((), 1)
    assert (await call("completeBatch", wire.TokenBatchRequest(()))).results == ()


async def test_failing_tries_again_and_at_last_gives_up(call: Caller) -> None:
    await call.enqueue("a")
    lease = await call.lease()
    failure = wire.FailRequest(
        lease.token, reason="no table", error_code="E1", metadata={"host": "h-1"}
    )
    returned = await call("fail", failure)
    assert (returned.success, returned.disposition, returned.attempt) == (True, "requeued", 1)
    again = await call.lease()
    assert again.attempt == 2
    assert again.fence > lease.fence
    assert (again.last_error.message, again.last_error.code) == ("no table", "E1")  # type: ignore[union-attr]
    last = await call("fail", wire.FailRequest(again.token))
    assert (last.disposition, last.attempt) == ("deadLettered", 2)
    assert (await call.stats()).dead_letter_count == 1


async def test_who_does_not_want_a_retry_says_so_and_a_delay_is_kept(call: Caller) -> None:
    await call.enqueue("dead")
    lease = await call.lease()
    returned = await call("fail", wire.FailRequest(lease.token, requeue=False))
    assert returned.disposition == "deadLettered"
    await call.enqueue("later")
    lease = await call.lease()
    await call("fail", wire.FailRequest(lease.token, delay_ms=3_600_000))
    assert await call("lease", wire.LeaseRequest()) is None
    stats = await call.stats()
    assert (stats.delayed_count, stats.dead_letter_count) == (1, 1)


async def test_what_is_released_was_not_tried(call: Caller) -> None:
    await call.enqueue("a")
    lease = await call.lease()
    assert (await call("release", held(lease))).success
    again = await call.lease()
    assert again.attempt == 1
    assert again.fence > lease.fence


async def test_an_old_token_is_refused_with_the_current_fence(call: Caller) -> None:
    await call.enqueue("a")
    old = await call.lease()
    await call("release", held(old))
    new = await call.lease()
    for verb in ("heartbeat", "complete", "release"):
        with pytest.raises(StaleToken) as refused:
            await call(verb, held(old))
        assert refused.value.current_fence == new.fence
        assert refused.value.code == "error.taskqueue.lease_inactive"
    with pytest.raises(StaleToken):
        await call("fail", wire.FailRequest(old.token))
    # An old client leaves the fence out; its token still is the one it was given.
    token = new.token
    bare = Token(token.sequence_id, token.attempt, token.lease_id)
    assert (await call("complete", wire.TokenRequest(bare))).success


async def test_a_token_nobody_was_given_is_unknown(call: Caller) -> None:
    for verb in ("heartbeat", "complete", "release"):
        with pytest.raises(UnknownToken):
            await call(verb, wire.TokenRequest(NOBODYS))
    with pytest.raises(UnknownToken):
        await call("fail", wire.FailRequest(NOBODYS))


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (None, "required"),
        (Payload("", "a"), "resource_type_required"),
        (Payload(" \t", "a"), "resource_type_required"),
        (Payload("table", ""), "resource_id_required"),
        (Payload("table", "\n"), "resource_id_required"),
    ],
)
async def test_a_blank_payload_keeps_its_code(
    call: Caller, payload: Payload | None, reason: str
) -> None:
    with pytest.raises(InvalidPayload) as refused:
        await call("enqueue", wire.EnqueueRequest(payload=payload))
    assert refused.value.code == f"resourcelease.payload.{reason}"
    assert refused.value.status == "INVALID_ARGUMENT"


@pytest.mark.parametrize(
    ("verb", "request_"),
    [
        ("lease", wire.LeaseRequest(lease_duration_ms=1)),
        ("lease", wire.LeaseRequest(resource_types=("t",) * 65)),
        ("leaseBatch", wire.LeaseBatchRequest(max_items=0)),
        ("leaseBatch", wire.LeaseBatchRequest(max_items=1001)),
        ("enqueue", wire.EnqueueRequest(payload=Payload("t", "a"), priority=1001)),
        ("enqueue", wire.EnqueueRequest(payload=Payload("t", "a"), delay_ms=10**15)),
        ("enqueue", wire.EnqueueRequest(payload=Payload("t" * 513, "a"))),
        ("drain", wire.DrainRequest(max_items=0)),
        ("inspect", wire.InspectRequest()),
        ("inspect", wire.InspectRequest(sequence_id=1, resource_type="t", resource_id="a")),
        ("inspect", wire.InspectRequest(resource_type="t")),
    ],
)
async def test_what_cannot_be_asked_is_refused(
    call: Caller, verb: str, request_: wire.LeaseRequest
) -> None:
    with pytest.raises(InvalidArgument):
        await call(verb, request_)


async def test_a_full_queue_says_how_full_it_is(call: Caller) -> None:
    filled = await call("enqueueBatch", wire.EnqueueBatchRequest(tuple(map(item, "abcde" * 4))))
    assert filled.stats.pending_count == 20
    with pytest.raises(QueueFull) as refused:
        await call.enqueue("one too many")
    assert refused.value.code == "error.resourcelease.capacity"
    assert refused.value.details == {"pending": 20, "capacity": 20}


@pytest.mark.parametrize("over", WIRES)
async def test_backpressure_refuses_new_work_and_never_what_makes_room(over: str) -> None:
    options = QueueOptions(pending_high=2, pending_low=1, enqueue_wait_ms=0)
    async with node(options) as opened, caller(opened, over) as call:
        for name in "ab":
            await call.enqueue(name)
        with pytest.raises(Backpressure):
            await call.enqueue("c")
        assert (await call.stats()).backpressure
        lease = await call.lease()
        await call("heartbeat", held(lease))
        await call("complete", held(lease))
        assert not (await call.stats()).backpressure
        await call.enqueue("c")


async def test_drained_items_come_back_once_however_often_they_are_restored(call: Caller) -> None:
    await call("enqueueBatch", wire.EnqueueBatchRequest(tuple(map(item, "abc"))))
    lease = await call.lease()
    page = await call("drain", wire.DrainRequest(max_items=1))
    assert ([one.payload.resource_id for one in page.items], page.remaining) == (["b"], 1)
    rest = await call("drain", wire.DrainRequest(include_active=True))
    assert [one.payload.resource_id for one in rest.items] == ["c", "a"]
    assert rest.remaining == 0
    with pytest.raises(StaleToken):
        await call("complete", held(lease))
    everything = wire.RestoreRequest((*page.items, *rest.items))
    restored = await call("restore", everything)
    assert (restored.restored_count, restored.skipped_count) == (3, 0)
    again = await call("restore", everything)
    assert (again.restored_count, again.skipped_count) == (0, 3)
    leases = (await call("leaseBatch", wire.LeaseBatchRequest(max_items=9))).leases
    assert sorted(one.payload.resource_id for one in leases) == ["a", "b", "c"]
    assert min(one.fence for one in leases) > lease.fence


async def test_an_item_of_another_queue_does_not_take_the_place_of_ours(call: Caller) -> None:
    await call.enqueue("ours")
    foreign = PendingItem(Payload("table", "theirs"), 1, to_time(0), 1, origin="elsewhere")
    with pytest.raises(SequenceConflict) as refused:
        await call("restore", wire.RestoreRequest((foreign,)))
    assert refused.value.code == "error.resourcelease.sequence_conflict"


async def test_an_item_can_be_looked_at_wherever_it_is(call: Caller) -> None:
    await call.enqueue("a")
    waiting = await call("inspect", wire.InspectRequest(sequence_id=1))
    assert (waiting.state, waiting.item.payload.resource_id) == ("ready", "a")
    assert [event.event_type for event in waiting.history] == ["Enqueue"]
    lease = await call.lease(peer_id="w")
    leased = await call("inspect", wire.InspectRequest(resource_type="table", resource_id="a"))
    assert (leased.state, leased.owner_peer_id, leased.fence) == ("leased", "w", lease.fence)
    assert leased.principal == "anonymous"
    assert leased.expires_at == lease.expires_at
    assert [event.event_type for event in leased.history] == ["Enqueue", "LeaseGranted"]
    with pytest.raises(OmniRelayError) as refused:
        await call("inspect", wire.InspectRequest(resource_type="table", resource_id="none"))
    assert refused.value.status == "NOT_FOUND"


async def test_dead_letters_are_listed_brought_back_and_dropped(call: Caller) -> None:
    for name in "ab":
        await call.enqueue(name)
        lease = await call.lease()
        await call("fail", wire.FailRequest(lease.token, requeue=False))
    page = await call("deadLetters", wire.DeadLettersRequest(max_items=1))
    assert ([one.payload.resource_id for one in page.items], page.total) == (["a"], 2)
    assert page.items[0].dead_letter
    rest = await call("deadLetters", wire.DeadLettersRequest(after=page.items[0].sequence_id))
    assert [one.payload.resource_id for one in rest.items] == ["b"]
    assert (await call("redrive", wire.DeadSelection(sequence_ids=(1,)))).count == 1
    assert (await call("purge", wire.DeadSelection(resource_id="b"))).count == 1
    assert (await call("purge", wire.DeadSelection())).count == 0
    lease = await call.lease()
    assert lease.payload.resource_id == "a"
    assert lease.attempt == 2


async def test_nothing_to_lease_is_no_error(call: Caller) -> None:
    assert await call("lease", wire.LeaseRequest()) is None
    assert await call("lease", wire.LeaseRequest(wait_ms=20)) is None
    assert (await call("leaseBatch", wire.LeaseBatchRequest(wait_ms=20))).leases == ()


async def test_only_the_wanted_types_are_leased(call: Caller) -> None:
    await call.enqueue("a")
    wanted = wire.LeaseRequest(resource_types=("view",))
    assert await call("lease", wanted) is None
    assert (await call.lease(resource_types=("view", "table"))).payload.resource_id == "a"


async def test_a_call_whose_time_is_up_ends_while_it_waits(call: Caller) -> None:
    codec = call.outbound.codec
    meta = RequestMeta(
        procedure=f"{NAMESPACE}::lease",
        transport=call.outbound.name,
        encoding=codec.name,
        expires_ms=CLOCK.monotonic_ms() + 60,
    )
    body = codec.encode(wire.LeaseRequest(wait_ms=60_000))
    with pytest.raises(DeadlineExceeded):
        await call.outbound(Request(meta, body, codec))
    await call.enqueue("a")
    assert (await call.lease()).attempt == 1  # nobody who left was given it


async def test_a_verb_that_is_none_is_unimplemented(call: Caller) -> None:
    with pytest.raises(Unimplemented):
        await call.client.unary("explode", wire.StatsRequest(), wire.StatsResponse)


async def test_a_body_beyond_the_limit_is_too_large(call: Caller) -> None:
    with pytest.raises(TooLarge):
        await call.enqueue("a", body=bytes(9 << 20))
    await call.enqueue("b")


async def test_a_batch_of_large_bodies_is_leased_in_answers_that_arrive(call: Caller) -> None:
    for name in "abcdefghij":
        await call.enqueue(name, body=bytes(1_000_000))
    names: list[str] = []
    while len(names) < 10:
        leases = (await call("leaseBatch", wire.LeaseBatchRequest(max_items=10))).leases
        assert leases
        names += [lease.payload.resource_id for lease in leases]
        assert {lease.attempt for lease in leases} == {1}
    assert names == list("abcdefghij")


async def test_items_that_are_large_in_other_ways_are_drained_and_leased_in_parts(
    call: Caller,
) -> None:
    """An answer that could not be sent would take them out of the queue for nobody."""
    attributes = {str(number): "\U0001f600" * 4_000 for number in range(64)}
    for name in "abcdefghijkl":
        await call.enqueue(name, attributes=attributes)
    drained: list[PendingItem] = []
    while page := (await call("drain", wire.DrainRequest())).items:
        drained += page
    assert [one.payload.resource_id for one in drained] == list("abcdefghijkl")
    for one in drained:
        await call("restore", wire.RestoreRequest((one,)))
    leased: list[str] = []
    while leases := (await call("leaseBatch", wire.LeaseBatchRequest(max_items=12))).leases:
        leased += [lease.payload.resource_id for lease in leases]
    assert leased == list("abcdefghijkl")
