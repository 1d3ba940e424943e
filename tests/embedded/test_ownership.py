"""Who holds an item, and how a holder learns that it holds it no more."""

import asyncio
import threading
import time

import pytest

import omnirelay
from omnirelay import QueueOptions, Relay, StaleToken
from tests.embedded.places import EVERYWHERE, Place
from tests.embedded.signals import SHORT_S, Failpoints, committed, counts, next_item

pytestmark = pytest.mark.places(*EVERYWHERE)

SHORT = QueueOptions(lease_duration_ms=300, requeue_delay_ms=0)


async def test_a_lease_without_renewal_is_lost_when_its_time_is_up(relay: Relay) -> None:
    await relay.enqueue("table", "orders")
    lease = await relay.lease(renew=False, duration=SHORT_S)
    await lease.lost.wait()
    assert "time is up" in (lease.lost.reason or "")
    expired = await committed(relay, "Expired")
    assert (expired.sequence_id, expired.fence) == (lease.sequence_id, lease.fence)


async def test_many_leases_may_go_without_renewal_too(relay: Relay) -> None:
    await relay.enqueue_many([omnirelay.Payload("table", f"t{n}") for n in range(3)])
    leases = await relay.lease_many(3, renew=False, duration=SHORT_S)
    for lease in leases:
        await lease.lost.wait()
    await committed(relay, "Expired", count=3)
    assert await counts(relay) == (3, 0)


async def test_a_lease_without_renewal_that_ends_in_time_is_not_lost(relay: Relay) -> None:
    await relay.enqueue("table", "orders")
    async with relay.lease(renew=False) as lease:
        pass
    assert not lease.lost.is_set()
    assert await counts(relay) == (0, 0)


async def test_a_stalled_holder_is_fenced_out(relay: Relay) -> None:
    await relay.enqueue("table", "orders")
    stalled = await relay.lease(renew=False, duration=SHORT_S)
    successor = await next_item(relay)
    assert successor.sequence_id == stalled.sequence_id
    assert successor.fence > stalled.fence
    assert successor.attempt == 2
    with pytest.raises(StaleToken) as refused:
        await stalled.complete()
    assert refused.value.current_fence == successor.fence
    with pytest.raises(StaleToken):
        await stalled.fail("too late")
    with pytest.raises(StaleToken):
        await stalled.release()
    await successor.complete()
    completed = await committed(relay, "Completed")
    assert completed.fence == successor.fence


async def outlive(relay: Relay, error: Exception | None = None) -> None:
    async with relay.lease(renew=False, duration=SHORT_S) as lease:
        await lease.lost.wait()
        await committed(relay, "Expired")
        if error is not None:
            raise error


async def test_a_block_that_outlives_its_lease_says_so_on_leaving(relay: Relay) -> None:
    await relay.enqueue("table", "orders")
    with pytest.raises(StaleToken):
        await outlive(relay)


async def test_the_callers_own_error_matters_more_than_a_lost_lease(relay: Relay) -> None:
    await relay.enqueue("table", "orders")
    with pytest.raises(ZeroDivisionError):
        await outlive(relay, ZeroDivisionError())


async def test_draining_active_items_takes_them_from_their_holders(place: Place) -> None:
    async with place.connect(options=SHORT) as relay:
        await relay.enqueue("table", "orders")
        lease = await relay.lease()
        page = await relay.drain(include_active=True)
        assert [item.sequence_id for item in page.items] == [lease.sequence_id]
        await lease.lost.wait()  # by the next heartbeat at the latest
        with pytest.raises(StaleToken, match="drained"):
            await lease.complete()


async def test_heartbeats_keep_a_lease_while_the_loop_is_blocked(place: Place) -> None:
    async with place.connect(options=SHORT) as relay:
        await relay.enqueue("table", "orders")
        async with relay.lease() as lease:
            # Three lease times without one turn of the loop: only real time can show this.
            time.sleep(0.9)  # noqa: ASYNC251
            assert not lease.lost.is_set()
        assert [e.event_type async for e in relay.events(0, follow=False)][-1] == "Completed"
        await committed(relay, "Heartbeat")


async def test_heartbeats_are_sent_from_a_thread_of_their_own(place: Place) -> None:
    beating: set[str] = set()

    async with place.connect(options=SHORT) as relay:
        link = relay._link
        beat = link.beat

        def noted(*args: object) -> object:
            beating.add(threading.current_thread().name)
            return beat(*args)  # type: ignore[arg-type]

        link.beat = noted  # type: ignore[method-assign, assignment]
        await relay.enqueue("table", "orders")
        lease = await relay.lease()
        await committed(relay, "Heartbeat")
        await lease.complete()
    assert beating == {"omnirelay-heart"}


async def test_lost_can_be_awaited_by_many_and_from_threads(relay: Relay) -> None:
    await relay.enqueue("table", "orders")
    lease = await relay.lease(renew=False, duration=SHORT_S)
    waiting = [asyncio.create_task(lease.lost.wait()) for _ in range(3)]
    in_threads = [asyncio.to_thread(lease.lost.wait_blocking, 10) for _ in range(3)]
    assert await asyncio.gather(*in_threads) == [True, True, True]
    await asyncio.gather(*waiting)
    await lease.lost.wait()  # at once, once it is known


async def test_a_closed_relay_tells_the_holders_of_its_leases(place: Place) -> None:
    relay = await place.connect()
    await relay.enqueue("table", "orders")
    held = await relay.lease()
    unrenewed = await relay.enqueue("table", "other")
    other = await relay.lease(renew=False)
    assert other.sequence_id == unrenewed.sequence_id
    await relay.close()
    assert held.lost.is_set()
    assert other.lost.is_set()
    assert "closed" in (held.lost.reason or "")


async def test_appends_never_run_on_the_callers_thread(
    relay: Relay, failpoints: Failpoints
) -> None:
    await relay.enqueue("table", "orders")
    async with relay.lease():
        pass
    await relay.enqueue_many([omnirelay.Payload("table", f"t{n}") for n in range(10)])
    await relay.drain()
    threads = failpoints.threads["shard.before_append"]
    assert threads
    assert threading.get_ident() not in threads


async def test_reading_events_never_blocks_the_callers_loop(
    file_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from omnirelay.stores.sqlite import SqliteReader

    threads: set[int] = set()
    read = SqliteReader.read

    async def noted(self: SqliteReader, after: int, limit: int) -> list[bytes]:
        threads.add(threading.get_ident())
        return await read(self, after, limit)

    async with omnirelay.connect(file_url) as relay:
        await relay.enqueue("table", "orders")
        monkeypatch.setattr(SqliteReader, "read", noted)
        assert len([event async for event in relay.events(0, follow=False)]) == 2
    assert threads
    assert threading.get_ident() not in threads
