"""`async with relay.lease()`: how a lease ends follows from how its block ends."""

import asyncio

import pytest

import omnirelay
from omnirelay import DeadLetter, NothingToLease, QueueOptions, Relay, StaleToken
from tests.embedded.places import EVERYWHERE, Place
from tests.embedded.signals import QUICK, a_turn_of_the_loop, committed, counts, kinds, next_item

pytestmark = pytest.mark.places(*EVERYWHERE)


async def test_leaving_the_block_completes(relay: Relay) -> None:
    await relay.enqueue("table", "orders", body=b"vacuum")
    async with relay.lease() as lease:
        assert (lease.resource_type, lease.resource_id, lease.body) == (
            "table",
            "orders",
            b"vacuum",
        )
        assert lease.attempt == 1
        assert await counts(relay) == (0, 1)
    assert lease.is_over
    assert await kinds(relay) == ["Enqueue", "LeaseGranted", "Completed"]
    assert await counts(relay) == (0, 0)


async def test_an_exception_fails_the_lease_and_the_item_comes_back(relay: Relay) -> None:
    await relay.enqueue("table", "orders")
    with pytest.raises(RuntimeError, match="no disk"):
        async with relay.lease():
            raise RuntimeError("no disk")
    again = await next_item(relay)
    assert again.attempt == 2
    assert again.last_error is not None
    assert again.last_error.message == "RuntimeError: no disk"


async def test_the_last_attempt_that_fails_ends_as_a_dead_letter(place: Place) -> None:
    async with place.connect(options=QUICK) as relay:
        await relay.enqueue("table", "orders", max_attempts=1)
        with pytest.raises(RuntimeError):
            async with relay.lease():
                raise RuntimeError("for the last time")
        assert [item.sequence_id for item in (await relay.dead_letters()).items] == [1]


async def test_dead_letter_ends_the_item_at_once(relay: Relay) -> None:
    await relay.enqueue("table", "orders")
    with pytest.raises(DeadLetter):
        async with relay.lease():
            raise DeadLetter("there is no such table")
    page = await relay.dead_letters()
    assert page.items[0].last_error is not None
    assert "there is no such table" in page.items[0].last_error.message
    assert await counts(relay) == (0, 0)


async def test_cancellation_hands_the_item_back_untried(relay: Relay) -> None:
    await relay.enqueue("table", "orders")
    inside = asyncio.Event()

    async def work() -> None:
        async with relay.lease():
            inside.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(work())
    await inside.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    again = await next_item(relay)
    assert again.attempt == 1
    assert again.last_error is None
    assert (await kinds(relay))[1:3] == ["LeaseGranted", "Released"]


async def test_nothing_to_lease_is_said_by_name(relay: Relay) -> None:
    with pytest.raises(NothingToLease):
        await relay.lease()
    with pytest.raises(NothingToLease):
        async with relay.lease(wait=0.01):
            raise AssertionError("there is no lease to enter with")
    assert await relay.lease_many(5) == []


async def test_a_lease_ended_by_hand_is_not_ended_twice(relay: Relay) -> None:
    await relay.enqueue("table", "orders")
    async with relay.lease() as lease:
        returned = await lease.fail("not today", error_code="e.x", delay=0, metadata={"a": "b"})
    assert returned.disposition == "requeued"
    failed = await committed(relay, "Failed")
    assert failed.error == omnirelay.ErrorInfo("not today", "e.x")
    assert failed.metadata["a"] == "b"
    assert await kinds(relay) == ["Enqueue", "LeaseGranted", "Failed"]


async def test_completing_twice_is_completing_once(relay: Relay) -> None:
    await relay.enqueue("table", "orders")
    lease = await relay.lease()
    await lease.complete()
    await lease.complete()
    assert (await kinds(relay)).count("Completed") == 1


async def test_a_released_lease_is_over_for_its_holder(relay: Relay) -> None:
    await relay.enqueue("table", "orders")
    lease = await relay.lease()
    await lease.release()
    with pytest.raises(StaleToken):
        await lease.complete()
    assert lease.lost.is_set()


async def test_a_report_refused_for_its_own_fault_leaves_the_lease_as_it_was(relay: Relay) -> None:
    await relay.enqueue("table", "orders")
    async with relay.lease() as lease:
        for delay in (-1, float("nan")):
            with pytest.raises(omnirelay.InvalidArgument):
                await lease.fail("later", delay=delay)
        assert not lease.is_over
        assert not lease.lost.is_set()
    assert (await kinds(relay))[-1] == "Completed"


async def test_an_error_in_words_that_are_no_utf8_is_kept_as_far_as_it_can_be(relay: Relay) -> None:
    await relay.enqueue("table", "orders")
    with pytest.raises(FileNotFoundError):
        async with relay.lease():
            raise FileNotFoundError("no file \udce9")
    failed = await committed(relay, "Failed")
    assert failed.error is not None
    assert failed.error.message == "FileNotFoundError: no file ?"


async def test_leases_of_chosen_types_pass_over_the_others(relay: Relay) -> None:
    await relay.enqueue("table", "a")
    await relay.enqueue("saga", "b")
    async with relay.lease(types=["saga", "cdc"]) as lease:
        assert lease.resource_type == "saga"


async def test_a_fence_is_above_every_fence_before_it(relay: Relay) -> None:
    for number in range(5):
        await relay.enqueue("table", f"t{number}")
    first = [lease.fence for lease in await relay.lease_many(3)]
    second = [lease.fence for lease in await relay.lease_many(3)]
    assert sorted(first + second) == first + second
    assert len({*first, *second}) == 5


async def test_the_holder_is_named_by_the_relay_or_by_the_call(place: Place) -> None:
    async with place.connect(peer_id="node-7") as relay:
        await relay.enqueue("table", "a")
        await relay.enqueue("table", "b")
        assert (await relay.lease()).owner_peer_id == "node-7"
        assert (await relay.lease(peer_id="thread-2")).owner_peer_id == "thread-2"
        granted = await committed(relay, "LeaseGranted", count=2)
        assert granted.peer_id == "thread-2"


async def test_many_leases_complete_in_one_commit_and_one_outcome_each(relay: Relay) -> None:
    await relay.enqueue_many([omnirelay.Payload("table", f"t{n}") for n in range(3)])
    leases = await relay.lease_many(10)
    await leases[1].release()
    outcomes = await relay.complete_many(leases)
    assert [isinstance(outcome, StaleToken) for outcome in outcomes] == [False, True, False]
    assert all(lease.is_over for lease in leases)


async def test_the_same_lease_request_again_gives_the_same_leases(relay: Relay) -> None:
    await relay.enqueue_many([omnirelay.Payload("table", f"t{n}") for n in range(4)])
    first = await relay.lease_many(2, request_id="r-1")
    again = await relay.lease_many(2, request_id="r-1")
    assert [lease.token for lease in again] == [lease.token for lease in first]
    assert await counts(relay) == (2, 2)


async def test_a_lease_request_whose_work_is_over_takes_nothing_more(relay: Relay) -> None:
    await relay.enqueue_many([omnirelay.Payload("table", f"t{n}") for n in range(2)])
    await (await relay.lease(request_id="r-1")).complete()
    with pytest.raises(StaleToken, match="new request id"):
        await relay.lease(request_id="r-1")
    assert await counts(relay) == (1, 0)


async def test_serialised_resources_are_never_held_twice(place: Place) -> None:
    options = QueueOptions(serialize_by=omnirelay.SerializeBy.RESOURCE)
    async with place.connect(options=options) as relay:
        await relay.enqueue("table", "hot")
        await relay.enqueue("table", "hot")
        await relay.enqueue("table", "cold")
        held = await relay.lease_many(3)
        assert [lease.resource_id for lease in held] == ["hot", "cold"]
        await held[0].complete()
        assert (await relay.lease()).resource_id == "hot"


# -- waiting ------------------------------------------------------------------------------------


async def test_a_waiting_lease_wakes_on_the_enqueue(relay: Relay) -> None:
    waiting = asyncio.create_task(next_item(relay))
    await a_turn_of_the_loop()
    await relay.enqueue("table", "orders")
    assert (await waiting).resource_id == "orders"


async def test_a_waiting_lease_wakes_when_an_item_is_released(relay: Relay) -> None:
    await relay.enqueue("table", "orders")
    held = await relay.lease()
    waiting = asyncio.create_task(next_item(relay))
    await a_turn_of_the_loop()
    await held.release()
    assert (await waiting).sequence_id == held.sequence_id


async def test_a_waiting_lease_wakes_when_a_delay_is_over(relay: Relay) -> None:
    await relay.enqueue("table", "orders", delay=0.05)
    assert (await relay.stats()).delayed_count == 1
    assert (await next_item(relay)).resource_id == "orders"


async def test_those_who_wait_are_served_in_their_order(relay: Relay) -> None:
    tasks = []
    for _ in range(3):
        tasks.append(asyncio.create_task(next_item(relay)))
        await relay.stats()  # an answer from the shard: the wish before it has been read
    for name in ("a", "b", "c"):
        await relay.enqueue("table", name)
    assert [(await task).resource_id for task in tasks] == ["a", "b", "c"]


async def test_a_cancelled_waiter_gets_no_lease(relay: Relay) -> None:
    waiting = asyncio.create_task(next_item(relay))
    await relay.stats()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await relay.enqueue("table", "orders")
    assert (await next_item(relay)).attempt == 1


async def test_a_lease_whose_waiter_has_gone_is_handed_back(relay: Relay) -> None:
    """The grant is on its way while the waiter is cancelled."""
    await relay.enqueue("table", "orders")
    asking = asyncio.create_task(next_item(relay))
    await a_turn_of_the_loop()  # the wish is in the inbox, its answer can only come later
    asking.cancel()
    await asyncio.wait([asking])
    assert (await next_item(relay)).sequence_id == 1
