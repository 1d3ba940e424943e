"""`connect_sync`: the same API for threads, eight of them at once."""

import inspect
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from omnirelay import (
    Backpressure,
    Closed,
    DeadLetter,
    Event,
    NothingToLease,
    Payload,
    QueueOptions,
    Relay,
    StaleToken,
    SyncLease,
    SyncRelay,
    connect_sync,
)
from tests.embedded.places import EMBEDDED, EVERYWHERE, Place
from tests.embedded.signals import QUICK, SHORT_S, Failpoints

pytestmark = pytest.mark.places(*EVERYWHERE)

THREADS = 8


@pytest.fixture
def queue(place: Place) -> Iterator[SyncRelay]:
    with place.connect_sync(options=QUICK) as queue:
        yield queue


def kinds(queue: SyncRelay) -> list[str]:
    return [event.event_type for event in queue.events()][1:]


def in_threads(work: Callable[[int], object]) -> list[object]:
    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(work, range(THREADS)))


def test_leaving_the_block_completes(queue: SyncRelay) -> None:
    queue.enqueue("table", "orders", body=b"vacuum")
    with queue.lease() as lease:
        assert (lease.resource_id, lease.body, lease.attempt) == ("orders", b"vacuum", 1)
        assert not lease.is_over
    assert lease.is_over
    assert kinds(queue) == ["Enqueue", "LeaseGranted", "Completed"]


def test_an_exception_fails_and_requeues(queue: SyncRelay) -> None:
    queue.enqueue("table", "orders")
    with pytest.raises(RuntimeError), queue.lease():
        raise RuntimeError("no disk")
    again = queue.lease(wait=10).take()
    assert again.attempt == 2
    assert again.last_error is not None
    again.release()


def test_dead_letter_and_interrupts_end_as_in_async(queue: SyncRelay) -> None:
    queue.enqueue("table", "a")
    with pytest.raises(DeadLetter), queue.lease():
        raise DeadLetter("never")
    assert queue.dead_letters().total == 1
    queue.enqueue("table", "b")
    with pytest.raises(KeyboardInterrupt), queue.lease():
        raise KeyboardInterrupt
    assert kinds(queue)[-1] == "Released"


def test_every_verb_of_the_async_relay_is_there(queue: SyncRelay) -> None:
    def verbs(kind: type) -> set[str]:
        return {name for name, _ in inspect.getmembers(kind, callable) if name[0] != "_"}

    # How the relay and its leases talk to one another is nobody else's business.
    assert verbs(Relay) - {"one", "take", "swap", "wish"} <= verbs(SyncRelay)
    assert {"complete", "fail", "release"} <= verbs(SyncLease)


def test_operating_verbs_answer_the_same(queue: SyncRelay) -> None:
    outcomes = queue.enqueue_many([Payload("table", f"t{n}") for n in range(4)])
    assert len(outcomes) == 4
    leases = queue.lease_many(2, peer_id="w")
    assert [lease.owner_peer_id for lease in leases] == ["w", "w"]
    assert len(queue.complete_many(leases)) == 2
    assert queue.inspect(3).state == "ready"
    page = queue.drain()
    assert queue.restore(page.items).restored_count == 2
    queue.lease().take().fail("broken", requeue=False)
    assert queue.redrive() == 1
    queue.lease_many(9, types=["table"])[0].fail("broken", requeue=False)
    assert queue.purge() == 1
    assert queue.stats().pending_count == 0


def test_nothing_to_lease_is_said_by_name(queue: SyncRelay) -> None:
    with pytest.raises(NothingToLease):
        queue.lease().take()
    with pytest.raises(NothingToLease):
        queue.lease(wait=0.01).take()
    assert queue.lease_many(3) == []


def test_a_thread_that_waits_wakes_on_the_enqueue(queue: SyncRelay) -> None:
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(lambda: queue.lease(wait=10).take())
        queue.enqueue("table", "orders")
        assert waiting.result(10).resource_id == "orders"


def test_a_stalled_thread_is_fenced_out(queue: SyncRelay) -> None:
    queue.enqueue("table", "orders")
    stalled = queue.lease(renew=False, duration=SHORT_S).take()
    successor = queue.lease(wait=10).take()
    assert stalled.lost.wait_blocking(10)
    with pytest.raises(StaleToken) as refused:
        stalled.complete()
    assert refused.value.current_fence == successor.fence


def test_heartbeats_keep_a_threads_lease(place: Place) -> None:
    with place.connect_sync(options=QueueOptions(lease_duration_ms=900)) as queue:
        queue.enqueue("table", "orders")
        with queue.lease() as lease:
            assert not lease.lost.wait_blocking(1.9)  # two lease times: only real time shows it
    assert lease.is_over


def test_eight_threads_do_every_item_exactly_once(queue: SyncRelay) -> None:
    def produce(number: int) -> None:
        for item in range(25):
            queue.enqueue("table", f"{number}-{item}", request_id=f"r-{number}-{item}")

    done: list[str] = []

    def work(number: int) -> None:
        while (lease := take(queue)) is not None:
            done.append(lease.resource_id)
            lease.complete()

    in_threads(produce)
    in_threads(work)
    assert len(done) == len(set(done)) == 25 * THREADS
    assert kinds(queue).count("Completed") == 25 * THREADS


def take(queue: SyncRelay) -> SyncLease | None:
    try:
        return queue.lease().take()
    except NothingToLease:
        return None


def test_producers_and_workers_run_side_by_side_in_threads(queue: SyncRelay) -> None:
    done = threading.Semaphore(0)

    def work(number: int) -> None:
        if number % 2:
            for item in range(20):
                queue.enqueue("table", f"{number}-{item}")
            return
        for _ in range(20):
            with queue.lease(wait=10):
                done.release()

    in_threads(work)
    assert all(done.acquire(blocking=False) for _ in range(20 * THREADS // 2))
    assert (queue.stats().pending_count, queue.stats().active_lease_count) == (0, 0)


def test_threads_wait_for_room_under_backpressure(place: Place) -> None:
    options = QueueOptions(pending_high=1, pending_low=0, enqueue_wait_ms=10_000)
    with place.connect_sync(options=options) as queue, ThreadPoolExecutor(1) as pool:
        queue.enqueue("table", "a")
        waiting = pool.submit(queue.enqueue, "table", "b")
        queue.lease(wait=10).take().complete()
        assert waiting.result(10).sequence_id == 2


def test_backpressure_that_lasts_is_refused(place: Place) -> None:
    options = QueueOptions(pending_high=1, pending_low=0, enqueue_wait_ms=20)
    with place.connect_sync(options=options) as queue:
        queue.enqueue("table", "a")
        with pytest.raises(Backpressure):
            queue.enqueue("table", "b")


def test_followers_serve_threads_too(queue: SyncRelay) -> None:
    seen = threading.Semaphore(0)

    async def apply(events: Sequence[Event]) -> None:
        for _ in events:
            seen.release()

    queue.follow("lake", apply)
    queue.enqueue("table", "a")
    assert seen.acquire(timeout=10)
    assert seen.acquire(timeout=10)
    assert [status.name for status in queue.followers()] == ["lake"]
    queue.unfollow("lake", forget=True)
    assert queue.followers() == []


def test_closing_while_threads_call_answers_every_one_of_them(place: Place) -> None:
    queue = place.connect_sync()
    started = threading.Barrier(THREADS + 1)

    def call(number: int) -> str:
        started.wait(10)
        try:
            while True:
                queue.enqueue("table", f"t{number}")
        except Closed:
            return "closed"

    with ThreadPoolExecutor(THREADS) as pool:
        calls = [pool.submit(call, number) for number in range(THREADS)]
        started.wait(10)
        queue.enqueue("table", "one more")
        queue.close()
        assert [one.result(10) for one in calls] == ["closed"] * THREADS


@pytest.mark.places(*EMBEDDED)
def test_a_lease_that_comes_for_a_thread_that_was_interrupted_is_handed_back(
    queue: SyncRelay, monkeypatch: pytest.MonkeyPatch
) -> None:
    from omnirelay.sdk.link import _Slot

    wait = _Slot.wait

    def interrupted(slot: _Slot, timeout_s: float | None) -> object:
        wait(slot, timeout_s)
        monkeypatch.undo()
        raise KeyboardInterrupt

    queue.enqueue("table", "orders")
    monkeypatch.setattr(_Slot, "wait", interrupted)
    with pytest.raises(KeyboardInterrupt):
        queue.lease().take()
    assert queue.lease(wait=10).take().attempt == 1


def test_a_lone_thread_appends_by_itself(file_url: str, failpoints: Failpoints) -> None:
    """A caller that blocks anyway saves two changes of thread."""
    with connect_sync(file_url) as queue:
        for number in range(20):
            queue.enqueue("table", f"t{number}")
    assert threading.get_ident() in failpoints.threads["shard.before_append"]
