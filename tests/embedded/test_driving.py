"""A blocking caller takes the shard's turn itself; what that must not break."""

import threading
from pathlib import Path

import pytest

import omnirelay
from omnirelay.lease.commands import Enqueue, ReadStats
from omnirelay.mesh.calls import Call, Outcome
from omnirelay.mesh.keeper import KeepOptions
from omnirelay.model import limits
from omnirelay.model.errors import OutcomeUnknown
from omnirelay.model.ports import set_failpoint
from omnirelay.sdk.engine import Engine


class Replies:
    def __init__(self) -> None:
        self.came = threading.Event()
        self.outcomes: list[Outcome] = []

    def __call__(self, outcomes: object) -> None:
        if not self.came.is_set():
            self.outcomes = list(outcomes)  # type: ignore[call-overload]
            self.came.set()


def enqueue(name: str) -> Enqueue:
    return Enqueue(payload=omnirelay.Payload("table", name, request_id=name))


def test_a_lone_blocking_caller_appends_on_its_own_thread(tmp_path: Path) -> None:
    threads: list[str] = []
    with omnirelay.connect_sync(f"sqlite:///{tmp_path}/leases.db") as relay:
        set_failpoint(lambda name: threads.append(threading.current_thread().name))
        try:
            relay.enqueue("table", "orders")
        finally:
            set_failpoint(None)
    assert set(threads) == {threading.current_thread().name}


def test_an_interrupted_driver_leaves_nobody_waiting_and_nothing_half_done(tmp_path: Path) -> None:
    engine = Engine.open(f"sqlite:///{tmp_path}/leases.db")
    other, mine, later = Replies(), Replies(), Replies()

    def interrupt(name: str) -> None:
        if name == "sqlite.after_commit":
            set_failpoint(None)
            raise KeyboardInterrupt

    try:
        # The other caller's call is in the inbox without a wake-up, so the driver's turn has both.
        engine.shard.put(Call([enqueue("other")], other))
        set_failpoint(interrupt)
        with pytest.raises(KeyboardInterrupt):
            engine.offer_and_drive(Call([enqueue("mine")], mine))
        assert mine.came.wait(5)
        assert other.came.wait(5)
        assert isinstance(mine.outcomes[0], OutcomeUnknown)
        assert isinstance(other.outcomes[0], OutcomeUnknown)
        # It did happen: a repeat with the same request ids makes no second item.
        while not later.came.is_set() or isinstance(later.outcomes[0], omnirelay.Unavailable):
            later = Replies()
            engine.offer(Call([enqueue("mine"), enqueue("other"), ReadStats()], later))
            assert later.came.wait(5)
    finally:
        set_failpoint(None)
        engine.close()
    first, second, stats = later.outcomes
    assert isinstance(first, omnirelay.Accepted)
    assert isinstance(second, omnirelay.Accepted)
    assert first.duplicate
    assert second.duplicate
    assert isinstance(stats, omnirelay.Stats)
    assert stats.pending_count == 2
    assert stats.epoch == 2


def test_callers_in_a_rush_do_not_keep_the_shard_from_its_own_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep = KeepOptions(snapshot_every=1)
    engine = Engine.open(f"sqlite:///{tmp_path}/leases.db", keep=keep)
    try:
        with monkeypatch.context() as patch:
            patch.setattr(engine.shard, "_wake", lambda: None)  # it is slow to wake
            asked = [Replies() for _ in range(limits.PASSED_OVER_MAX + 1)]
            for number, replies in enumerate(asked):
                engine.offer_and_drive(Call([enqueue(f"t{number}")], replies))
            *answered, last = asked
            assert all(replies.came.is_set() for replies in answered)
            assert not last.came.is_set(), "it waits for the shard"
        engine.offer(Call([ReadStats()], Replies()))
        assert last.came.wait(5)
        assert isinstance(last.outcomes[0], omnirelay.Accepted)
    finally:
        engine.close()


def test_a_lease_that_a_driver_was_granted_still_expires_by_itself(tmp_path: Path) -> None:
    options = omnirelay.QueueOptions(lease_duration_ms=100, max_attempts=1)
    with omnirelay.connect_sync(f"sqlite:///{tmp_path}/leases.db", options=options) as relay:
        relay.enqueue("table", "orders")
        relay.lease_many(1, renew=False)
        # Nobody calls: only the shard's own timer can end the lease, and the waiter hears of it.
        relay.enqueue("table", "later", delay=0.3)
        (lease,) = relay.lease_many(1, wait=10)
        assert lease.resource_id == "later"
        assert relay.stats().dead_letter_count == 1


def test_many_blocking_callers_at_once_lose_and_double_nothing(tmp_path: Path) -> None:
    with omnirelay.connect_sync(f"sqlite:///{tmp_path}/leases.db") as relay:
        done: list[str] = []

        def work(number: int) -> None:
            for turn in range(25):
                relay.enqueue("table", f"{number}-{turn}")
                with relay.lease(wait=10) as lease:
                    done.append(lease.resource_id)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(done) == sorted(f"{n}-{t}" for n in range(8) for t in range(25))
        stats = relay.stats()
        assert (stats.pending_count, stats.active_lease_count) == (0, 0)
