"""A worker: no more at once than it may, every lease ended as its handler ended."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from omnirelay import Closed, DeadLetter, Lease, Payload, QueueOptions, Relay, Worker
from omnirelay.model.errors import InvalidOption, OmniRelayError, Overloaded
from omnirelay.sdk.link import Wish
from tests.embedded.places import ONE_WIRE, Place
from tests.embedded.signals import a_turn_of_the_loop, committed, counts, kinds, next_item

pytestmark = pytest.mark.places(*ONE_WIRE)


@asynccontextmanager
async def at_work(worker: Worker) -> AsyncIterator["asyncio.Task[None]"]:
    running = asyncio.create_task(worker.run())
    try:
        yield running
    finally:
        worker.stop()
        await asyncio.wait([running])


async def fill(relay: Relay, count: int) -> None:
    await relay.enqueue_many([Payload("table", f"t{n}") for n in range(count)])


async def test_a_worker_completes_what_its_handler_returns_from(relay: Relay) -> None:
    worker = Worker(relay, concurrency=4)
    done: list[str] = []

    @worker.handles("table")
    async def compact(lease: Lease) -> None:
        done.append(lease.resource_id)

    await fill(relay, 20)
    async with at_work(worker):
        await committed(relay, "Completed", count=20)
    assert sorted(done) == sorted(f"t{n}" for n in range(20))
    assert (worker.completed, worker.failed, worker.lost) == (20, 0, 0)
    assert await counts(relay) == (0, 0)


async def test_no_more_handlers_run_at_once_than_the_worker_may(relay: Relay) -> None:
    worker = Worker(relay, concurrency=3)
    running = most = 0

    @worker.handles("table")
    async def compact(lease: Lease) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await relay.stats()
        running -= 1

    await fill(relay, 30)
    async with at_work(worker):
        await committed(relay, "Completed", count=30)
    assert most == 3


async def test_a_full_worker_leaves_the_rest_to_others(relay: Relay) -> None:
    worker = Worker(relay, concurrency=2)
    may_end = asyncio.Event()

    @worker.handles("table")
    async def compact(lease: Lease) -> None:
        await may_end.wait()

    await fill(relay, 5)
    async with at_work(worker):
        await committed(relay, "LeaseGranted", count=2)
        assert await counts(relay) == (3, 2)
        assert len(await relay.lease_many(5)) == 3
        may_end.set()


async def test_a_handler_that_raises_fails_its_lease_and_no_other(relay: Relay) -> None:
    worker = Worker(relay, concurrency=2)

    @worker.handles("table")
    async def compact(lease: Lease) -> None:
        if lease.resource_id == "t0" and lease.attempt == 1:
            raise ValueError("bad file")
        if lease.resource_id == "t1":
            raise DeadLetter("no such table")

    await fill(relay, 3)
    async with at_work(worker):
        await committed(relay, "Completed", count=2)
    assert (worker.completed, worker.failed) == (2, 2)
    assert [item.payload.resource_id for item in (await relay.dead_letters()).items] == ["t1"]
    failed = await committed(relay, "Failed")
    assert failed.error is not None


async def test_a_handler_that_is_not_async_fails_its_lease_and_the_worker_lives(
    relay: Relay,
) -> None:
    worker = Worker(relay)

    @worker.handles("table")  # type: ignore[arg-type]
    def compact(lease: Lease) -> None:
        return None

    await relay.enqueue("table", "orders", max_attempts=1)
    async with at_work(worker):
        failed = await committed(relay, "Failed")
        assert failed.error is not None
        assert "await" in failed.error.message


async def test_each_type_goes_to_its_own_handler_and_unknown_types_stay(relay: Relay) -> None:
    worker = Worker(relay)
    seen: list[tuple[str, str]] = []
    for kind in ("table", "saga"):

        @worker.handles(kind)
        async def handle(lease: Lease, kind: str = kind) -> None:
            seen.append((kind, lease.resource_type))

    for kind in ("table", "saga", "cdc"):
        await relay.enqueue(kind, "x")
    async with at_work(worker):
        await committed(relay, "Completed", count=2)
    assert sorted(seen) == [("saga", "saga"), ("table", "table")]
    assert await counts(relay) == (1, 0)


async def test_a_handler_may_end_its_lease_itself(relay: Relay) -> None:
    worker = Worker(relay)

    @worker.handles("table")
    async def compact(lease: Lease) -> None:
        await lease.release() if lease.attempt == 1 and not released else await lease.complete()
        released.append(lease.sequence_id)

    released: list[int] = []
    await relay.enqueue("table", "orders")
    async with at_work(worker):
        await committed(relay, "Completed")
    assert (await kinds(relay))[1:] == ["LeaseGranted", "Released", "LeaseGranted", "Completed"]


async def test_a_handler_whose_lease_is_lost_is_cancelled(place: Place) -> None:
    options = QueueOptions(lease_duration_ms=300)
    async with place.connect(options=options) as relay:
        worker = Worker(relay)
        cancelled = asyncio.Event()

        @worker.handles("table")
        async def compact(lease: Lease) -> None:
            try:
                await asyncio.Event().wait()
            finally:
                cancelled.set()

        await relay.enqueue("table", "orders")
        async with at_work(worker):
            await committed(relay, "LeaseGranted")
            await relay.drain(include_active=True)
            await cancelled.wait()
        assert worker.lost == 1
        assert (worker.completed, worker.failed) == (0, 0)


async def test_a_stopped_worker_finishes_what_it_has_in_hand(relay: Relay) -> None:
    worker = Worker(relay, concurrency=2)
    begun = asyncio.Semaphore(0)
    may_end = asyncio.Event()

    @worker.handles("table")
    async def compact(lease: Lease) -> None:
        begun.release()
        await may_end.wait()

    await fill(relay, 3)
    running = asyncio.create_task(worker.run())
    for _ in range(2):  # begun, not only granted: a grant still on its way would be handed back
        await begun.acquire()
    worker.stop()
    await a_turn_of_the_loop()
    assert not running.done()
    may_end.set()
    await running
    assert worker.completed == 2
    assert await counts(relay) == (1, 0)


async def test_a_stopped_worker_hands_back_what_does_not_end_in_time(relay: Relay) -> None:
    worker = Worker(relay, stop_timeout=0.01)

    @worker.handles("table")
    async def compact(lease: Lease) -> None:
        await asyncio.Event().wait()

    await fill(relay, 2)
    async with at_work(worker):
        await committed(relay, "LeaseGranted", count=2)
    # A grant that was still on its way when the worker stopped is handed back behind its back.
    await committed(relay, "Released", count=2)
    assert (await next_item(relay)).attempt == 1


async def test_a_worker_stopped_while_it_waits_takes_nothing_more(relay: Relay) -> None:
    worker = Worker(relay)

    @worker.handles("table")
    async def compact(lease: Lease) -> None:
        raise AssertionError("it was stopped")

    async with at_work(worker):
        await relay.stats()
    await relay.enqueue("table", "orders")
    assert (await next_item(relay)).attempt == 1


async def test_a_cancelled_worker_takes_nothing_more(relay: Relay) -> None:
    worker = Worker(relay)

    @worker.handles("table")
    async def compact(lease: Lease) -> None:
        raise AssertionError("it was cancelled")

    running = asyncio.create_task(worker.run())
    await a_turn_of_the_loop()
    await relay.stats()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await relay.enqueue("table", "orders")
    assert (await next_item(relay)).attempt == 1


async def test_a_worker_of_a_closed_relay_ends_and_says_why(place: Place) -> None:
    relay = await place.connect()
    worker = Worker(relay)

    @worker.handles("table")
    async def compact(lease: Lease) -> None:
        return None

    running = asyncio.create_task(worker.run())
    await a_turn_of_the_loop()
    await relay.stats()
    await relay.close()
    with pytest.raises(Closed):
        await running


async def test_a_worker_outlives_an_overload(relay: Relay, monkeypatch: pytest.MonkeyPatch) -> None:
    worker = Worker(relay)
    refusals = [Overloaded("too many calls")]
    take = relay.take

    async def refuse_once(wish: Wish) -> list[Lease]:
        if refusals:
            raise refusals.pop()
        return await take(wish)

    monkeypatch.setattr(relay, "take", refuse_once)

    @worker.handles("table")
    async def compact(lease: Lease) -> None:
        return None

    await relay.enqueue("table", "orders")
    async with at_work(worker):
        await committed(relay, "Completed")
    assert not refusals


async def test_a_worker_works_under_its_own_name(relay: Relay) -> None:
    worker = Worker(relay, peer_id="compactor-3")

    @worker.handles("table")
    async def compact(lease: Lease) -> None:
        return None

    await relay.enqueue("table", "orders")
    async with at_work(worker):
        assert (await committed(relay, "Completed")).peer_id == "compactor-3"


async def test_a_worker_that_could_do_nothing_is_refused(relay: Relay) -> None:
    with pytest.raises(InvalidOption, match="no handler"):
        await Worker(relay).run()
    for concurrency in (0, -1, 10_000):
        with pytest.raises(InvalidOption, match="concurrency"):
            Worker(relay, concurrency=concurrency)
    worker = Worker(relay)

    async def compact(lease: Lease) -> None:
        return None

    worker.handles("table")(compact)
    with pytest.raises(InvalidOption, match="already"):
        worker.handles("table")(compact)


async def test_leases_are_finished_and_the_next_taken_in_one_step(relay: Relay) -> None:
    await fill(relay, 3)
    first = await relay.lease_many(1)
    (done,), second = await relay.complete_and_lease(first, 2)
    assert not isinstance(done, OmniRelayError)
    assert [lease.resource_id for lease in second] == ["t1", "t2"]
    assert first[0].is_over
    stale, nothing = await relay.complete_and_lease([*second, *first], 1)
    assert [isinstance(one, OmniRelayError) for one in stale] == [False, False, False]
    assert nothing == []
    assert await relay.complete_and_lease([], 1) == ([], [])
    assert await counts(relay) == (0, 0)


async def test_a_worker_reports_in_the_call_that_asks_for_more(
    relay: Relay, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One call an item, not two."""
    worker = Worker(relay, concurrency=1, prefetch=0)
    swaps = takes = 0
    swap, take = relay.swap, relay.take

    async def counted_swap(leases: list[Lease], wish: Wish) -> object:
        nonlocal swaps
        swaps += 1
        return await swap(leases, wish)

    async def counted_take(wish: Wish) -> list[Lease]:
        nonlocal takes
        takes += 1
        return await take(wish)

    async def nobody(command: object) -> None:
        raise AssertionError("reported by itself")

    monkeypatch.setattr(relay, "swap", counted_swap)
    monkeypatch.setattr(relay, "take", counted_take)
    monkeypatch.setattr(relay, "one", nobody)

    @worker.handles("table")
    async def compact(lease: Lease) -> None:
        return None

    await fill(relay, 10)
    async with at_work(worker):
        await committed(relay, "Completed", count=10)
    assert (worker.completed, swaps) == (10, 10)
    assert takes <= 2  # the first, and the one that waits for an eleventh


async def test_a_report_that_is_too_late_is_counted_and_the_worker_goes_on(relay: Relay) -> None:
    worker = Worker(relay, concurrency=1, prefetch=0)
    stolen: list[Lease] = []

    @worker.handles("table")
    async def compact(lease: Lease) -> None:
        if not stolen:
            stolen.append(lease)
            await relay.drain(include_active=True)  # it is nobody's any more
            await relay.enqueue("table", "next")

    await relay.enqueue("table", "first")
    async with at_work(worker):
        await committed(relay, "Completed")
    assert (worker.completed, worker.lost) == (1, 1)
    assert stolen[0].is_lost


async def test_what_is_done_when_a_worker_stops_is_reported(relay: Relay) -> None:
    worker = Worker(relay, concurrency=1, prefetch=0)

    @worker.handles("table")
    async def compact(lease: Lease) -> None:
        worker.stop()

    await relay.enqueue("table", "orders")
    async with at_work(worker) as running:
        await running
    assert worker.completed == 1
    assert await counts(relay) == (0, 0)
