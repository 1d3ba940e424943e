"""The bell: nobody misses a ring, nobody is kept after it has gone."""

import asyncio

from omnirelay.journal.bell import Bell


async def test_a_ring_wakes_whoever_waits() -> None:
    bell = Bell()
    waiting = [asyncio.create_task(bell.wait(0, 10)) for _ in range(3)]
    await asyncio.sleep(0)
    await asyncio.to_thread(bell.ring, 1)
    await asyncio.gather(*waiting)


async def test_a_ring_before_the_wait_is_not_missed() -> None:
    bell = Bell()
    bell.ring(5)
    await bell.wait(4, 10)


async def test_a_wait_ends_after_its_time() -> None:
    await Bell().wait(0, 0.001)


async def test_a_closed_bell_keeps_nobody_waiting() -> None:
    bell = Bell()
    waiting = asyncio.create_task(bell.wait(0, 10))
    await asyncio.sleep(0)
    bell.close()
    await waiting
    await bell.wait(100, 10)
    assert bell.is_over


async def test_a_bell_forgets_those_who_have_gone() -> None:
    bell = Bell()
    bell.ring(1)
    for _ in range(5):
        await bell.wait(0, 10)
        await bell.wait(1, 0.0)
    cancelled = asyncio.create_task(bell.wait(1, 10))
    await asyncio.sleep(0)
    cancelled.cancel()
    await asyncio.wait([cancelled])
    assert not bell._listeners
