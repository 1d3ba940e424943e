"""Followers: every event once and in order, from a durable position, each for itself."""

import asyncio
import logging
import threading
from collections.abc import Sequence

import pytest

import omnirelay
from omnirelay import Event, FollowerStatus, InvalidArgument, KeepOptions, Payload, Relay
from tests.embedded.places import ONE_WIRE
from tests.embedded.signals import a_turn_of_the_loop, committed

pytestmark = pytest.mark.places(*ONE_WIRE)

WAIT_S = 10


class Sink:
    """Runs on the followers' thread; tells this one what it has seen."""

    def __init__(self, *, fails: int = 0) -> None:
        self.seen: list[int] = []
        self._fails = fails
        self.failures = threading.Semaphore(0)
        self._grown = threading.Condition()

    async def __call__(self, events: Sequence[Event]) -> None:
        if self._fails:
            self._fails -= 1
            self.failures.release()
            raise ConnectionError("the lake is closed")
        with self._grown:
            self.seen += [event.sequence_number for event in events]
            self._grown.notify_all()

    def mend(self) -> None:
        self._fails = 0

    def _reached(self, last: int) -> bool:
        with self._grown:
            return self._grown.wait_for(lambda: self.seen[-1:] >= [last], WAIT_S)

    async def reached(self, last: int) -> None:
        assert await asyncio.to_thread(self._reached, last), self.seen

    async def failed(self) -> None:
        assert await asyncio.to_thread(self.failures.acquire, timeout=WAIT_S)


async def fill(relay: Relay, count: int) -> int:
    await relay.enqueue_many([Payload("table", f"t{n}") for n in range(count)])
    return (await relay.stats()).last_sequence


async def status(relay: Relay, name: str) -> FollowerStatus:
    """Asked on the followers' thread, so after all it has begun."""
    found = await asyncio.to_thread(relay.followers)
    return next(one for one in found if one.name == name)


async def caught_up(relay: Relay, name: str) -> FollowerStatus:
    while (found := await status(relay, name)).sequence_lag:
        await a_turn_of_the_loop()
    return found


async def test_a_follower_gets_every_event_in_order(relay: Relay) -> None:
    before = await fill(relay, 5)
    sink = Sink()
    relay.follow("lake", sink)
    await sink.reached(before)
    after = await fill(relay, 5)
    await sink.reached(after)
    assert sink.seen == list(range(1, after + 1))


async def test_a_follower_goes_on_after_a_restart_where_it_was(file_url: str) -> None:
    first, second = Sink(), Sink()
    async with omnirelay.connect(file_url) as relay:
        relay.follow("lake", first)
        reached = await fill(relay, 5)
        await first.reached(reached)
        await caught_up(relay, "lake")
    async with omnirelay.connect(file_url) as relay:
        relay.follow("lake", second)
        last = await fill(relay, 2)
        await second.reached(last)
    assert first.seen + second.seen == list(range(1, last + 1))


async def test_an_unfollowed_follower_stops_and_comes_back_where_it_was(relay: Relay) -> None:
    first, second = Sink(), Sink()
    relay.follow("lake", first)
    reached = await fill(relay, 3)
    await first.reached(reached)
    await caught_up(relay, "lake")
    relay.unfollow("lake")
    assert relay.followers() == []
    last = await fill(relay, 3)
    relay.follow("lake", second)
    await second.reached(last)
    assert first.seen + second.seen == list(range(1, last + 1))


async def test_a_forgotten_follower_starts_anew(relay: Relay) -> None:
    first, second = Sink(), Sink()
    relay.follow("lake", first)
    reached = await fill(relay, 3)
    await first.reached(reached)
    await caught_up(relay, "lake")
    relay.unfollow("lake", forget=True)
    relay.follow("lake", second)
    await second.reached(reached)
    assert second.seen == first.seen


async def test_a_follower_of_an_earlier_process_can_be_forgotten(file_url: str) -> None:
    async with omnirelay.connect(file_url) as relay:
        sink = Sink()
        relay.follow("lake", sink)
        await sink.reached(1)
        await caught_up(relay, "lake")
    async with omnirelay.connect(file_url) as relay:
        relay.unfollow("lake", forget=True)
        sink = Sink()
        relay.follow("lake", sink)
        await sink.reached(1)
        assert sink.seen[0] == 1


async def test_a_failing_sink_is_tried_again_and_misses_nothing(
    relay: Relay, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)
    sink = Sink(fails=2)
    relay.follow("lake", sink)
    last = await fill(relay, 3)
    await sink.reached(last)
    assert sink.seen == list(range(1, last + 1))
    found = await caught_up(relay, "lake")
    assert found.failures == 2


async def test_a_failing_sink_holds_up_nobody_else(
    relay: Relay, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)
    bad, good = Sink(fails=1000), Sink()
    relay.follow("bad", bad)
    relay.follow("good", good)
    last = await fill(relay, 3)
    await good.reached(last)
    await bad.failed()
    assert bad.seen == []
    await relay.enqueue("table", "more")
    await good.reached(last + 1)
    found = await status(relay, "bad")
    assert found.position == 0
    assert found.sequence_lag == last + 1
    assert found.last_error == "ConnectionError: the lake is closed"
    bad.mend()
    await bad.reached(last + 1)


async def test_lag_is_told_in_events_and_in_time(relay: Relay) -> None:
    await fill(relay, 3)
    gate = threading.Event()
    begun = threading.Event()

    async def stuck(events: Sequence[Event]) -> None:
        begun.set()
        await asyncio.to_thread(gate.wait, WAIT_S)

    relay.follow("lake", stuck)
    assert await asyncio.to_thread(begun.wait, WAIT_S)
    found = await status(relay, "lake")
    assert (found.position, found.sequence_lag) == (0, 4)
    oldest = await committed(relay, "EpochStarted")
    assert found.lag_ms >= 0
    later = await status(relay, "lake")
    assert later.lag_ms >= found.lag_ms
    assert oldest.sequence_number == 1
    gate.set()
    found = await caught_up(relay, "lake")
    assert (found.position, found.sequence_lag, found.lag_ms) == (4, 0, 0)


async def test_pruning_waits_for_the_slowest_follower_and_not_for_a_forgotten_one(
    file_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)
    keep = KeepOptions(snapshot_every=10, retain_ms=0)
    async with omnirelay.connect(file_url, keep=keep) as relay:
        behind = Sink(fails=1000)
        relay.follow("behind", behind)
        for number in range(40):
            await relay.enqueue("table", f"t{number}")
        kept = [event.sequence_number async for event in relay.events(0, follow=False)]
        assert kept[0] == 1, "nothing was pruned that the follower has not seen"
        relay.unfollow("behind", forget=True)
        for number in range(40):
            await relay.enqueue("table", f"u{number}")
        with pytest.raises(omnirelay.Corrupt):
            await anext(relay.events(0, follow=False))


async def test_a_follower_that_finds_a_gap_stops_there_and_says_so(
    file_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)
    keep = KeepOptions(snapshot_every=10, retain_ms=0)
    async with omnirelay.connect(file_url, keep=keep) as relay:
        for number in range(40):
            await relay.enqueue("table", f"t{number}")
        sink = Sink()
        relay.follow("late", sink)  # from 0, which was pruned before it came
        while not (found := await status(relay, "late")).failures:
            await a_turn_of_the_loop()
        assert "sequence 1" in (found.last_error or "")
        assert sink.seen == []


async def test_names_of_followers_are_checked(relay: Relay) -> None:
    relay.follow("lake", Sink())
    with pytest.raises(InvalidArgument, match="runs already"):
        relay.follow("lake", Sink())
    with pytest.raises(InvalidArgument, match="no follower named"):
        relay.unfollow("nobody")
    for name in ("", "  ", "x" * 513, 7, None):
        with pytest.raises(InvalidArgument):
            relay.follow(name, Sink())  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument):
        relay.follow("other", "not a function")  # type: ignore[arg-type]


async def test_a_sink_that_asks_for_its_own_status_is_refused_instead_of_waiting_for_itself(
    relay: Relay,
) -> None:
    refused = threading.Event()

    async def curious(events: Sequence[Event]) -> None:
        try:
            relay.followers()
        except InvalidArgument:
            refused.set()

    relay.follow("curious", curious)
    assert await asyncio.to_thread(refused.wait, WAIT_S)
