"""The simulated loop: one seed is one schedule, time costs nothing, nothing reaches outside."""

import asyncio
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress

import anyio
import anyio.to_thread
import pytest

from omnirelay.testing.loop import (
    Deadlock,
    Livelock,
    NotSimulated,
    SimClock,
    SimulationError,
    run_simulated,
    sim_loop,
)


async def crowd() -> tuple[int, ...]:
    """Workers that wake together, are cancelled together, and clean up together."""
    order: list[int] = []

    async def work(number: int) -> None:
        try:
            for _ in range(5):
                await anyio.sleep(1)
                order.append(number)
            await anyio.sleep_forever()
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.sleep(0.5)
            order.append(-number)

    async with anyio.create_task_group() as tasks:
        for number in range(1, 9):
            tasks.start_soon(work, number)
        await anyio.sleep(5.5)
        tasks.cancel_scope.cancel()
    return tuple(order)


async def ticks(names: str, rounds: int) -> str:
    order: list[str] = []

    async def tick(name: str) -> None:
        for _ in range(rounds):
            await asyncio.sleep(1)
            order.append(name)

    await asyncio.gather(*map(tick, names))
    return "".join(order)


def test_the_same_seed_gives_the_same_trace() -> None:
    for seed in range(30):
        first = run_simulated(crowd, seed=seed)
        kept = [object() for _ in range(seed * 37)]  # moves what is allocated next
        assert run_simulated(crowd, seed=seed) == first
        del kept


def test_the_same_seed_gives_the_same_trace_in_another_process() -> None:
    code = (
        "import sys; sys.path[:0] = sys.argv[1:]\n"
        "from test_simulated_loop import crowd\n"
        "from omnirelay.testing.loop import run_simulated\n"
        "print([run_simulated(crowd, seed=seed).fingerprint for seed in range(20)])"
    )
    command = [sys.executable, "-c", code, os.path.dirname(__file__), *sys.path]
    first, second = (
        subprocess.check_output(command, env={**os.environ, "PYTHONHASHSEED": hash_seed})
        for hash_seed in ("1", "2")
    )
    assert first == second


def test_different_seeds_give_every_order_of_three_tasks() -> None:
    results = [run_simulated(lambda: ticks("abc", 1), seed=seed) for seed in range(100)]
    orders = {result.value for result in results}
    assert len({result.fingerprint for result in results}) >= len(orders)
    assert orders == {"abc", "acb", "bac", "bca", "cab", "cba"}


def test_the_fingerprint_sees_times_as_well_as_names() -> None:
    short = run_simulated(lambda: asyncio.sleep(1), seed=1)
    long = run_simulated(lambda: asyncio.sleep(2), seed=1)
    assert short.callbacks == long.callbacks
    assert short.fingerprint != long.fingerprint


def test_some_seeds_keep_one_task_slow_for_the_whole_run() -> None:
    orders = [run_simulated(lambda: ticks("ab", 12), seed=seed).value for seed in range(40)]
    steady = [order for order in orders if order in ("ab" * 12, "ba" * 12)]
    assert 0 < len(steady) < len(orders)


@pytest.mark.parametrize("seed", range(20))
def test_a_callback_never_runs_in_the_turn_that_scheduled_it(seed: int) -> None:
    async def main() -> list[str]:
        order: list[str] = []

        def early(name: str) -> None:
            order.append(name)
            sim_loop().call_soon(order.append, "late")

        for name in "abc":
            sim_loop().call_soon(early, name)
        await asyncio.sleep(1)
        return order

    order = run_simulated(main, seed=seed).value or []
    assert sorted(order[:3]) == ["a", "b", "c"]
    assert order[3:] == ["late"] * 3


@pytest.mark.parametrize("seed", range(20))
def test_timers_run_at_their_times_and_in_that_order(seed: int) -> None:
    async def main() -> list[float]:
        times: list[float] = []
        for tenths in (7, 3, 9, 1, 5):
            sim_loop().call_at(tenths / 10, lambda: times.append(sim_loop().time()))
        await asyncio.sleep(1)
        return times

    assert run_simulated(main, seed=seed).value == [0.1, 0.3, 0.5, 0.7, 0.9]


def test_a_year_of_sleep_takes_no_time() -> None:
    result = run_simulated(lambda: asyncio.sleep(365 * 86_400), seed=1)
    assert result.virtual_s == 365 * 86_400


def test_cancelled_timers_do_not_hold_back_time() -> None:
    async def main() -> None:
        for _ in range(300):
            sim_loop().call_later(5, print).cancel()
        await asyncio.sleep(1)

    assert run_simulated(main, seed=1).ended_s == 1


async def wait_for_nothing() -> None:
    await asyncio.Event().wait()


def test_a_deadlock_is_named_with_the_tasks_and_their_lines() -> None:
    async def main() -> None:
        await asyncio.sleep(3)
        await asyncio.gather(wait_for_nothing(), wait_for_nothing())

    with pytest.raises(Deadlock) as caught:
        run_simulated(main, seed=1)
    assert (caught.value.at_s, len(caught.value.pending)) == (3, 3)
    assert "wait_for_nothing#2" in str(caught.value)
    line = wait_for_nothing.__code__.co_firstlineno + 1
    assert f"{__file__}:{line} in wait_for_nothing" in str(caught.value)


def test_a_deadlock_is_found_even_when_the_run_has_an_end() -> None:
    with pytest.raises(Deadlock):
        run_simulated(wait_for_nothing, seed=1, until_s=1_000)


async def spin() -> None:
    while True:  # noqa: ASYNC110 - a bad program on purpose
        await asyncio.sleep(0)


def test_tasks_that_only_keep_each_other_busy_are_a_livelock() -> None:
    ended: list[object] = []

    async def main() -> None:
        asyncio.ensure_future(spin()).add_done_callback(ended.append)
        await spin()

    with pytest.raises(Livelock, match="main#1"):
        run_simulated(main, seed=1)
    assert ended, "even then tasks may clean up"


def test_spinning_does_not_stop_the_clock() -> None:
    async def main() -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(spin)
            await asyncio.sleep(10)
            tasks.cancel_scope.cancel()

    assert run_simulated(main, seed=1).ended_s == 10


def test_until_ends_a_run_that_would_go_on() -> None:
    result = run_simulated(lambda: asyncio.sleep(60), seed=1, until_s=1.0, start_s=5.0)
    assert (result.finished, result.ended_s, len(result.pending)) == (False, 6.0, 1)
    assert run_simulated(lambda: asyncio.sleep(1.0), seed=1, until_s=1.0).finished


@pytest.mark.parametrize("seed", range(10))
def test_anyio_works_unchanged(seed: int) -> None:
    async def main() -> list[int]:
        send, receive = anyio.create_memory_object_stream[int](2)
        seen: list[int] = []

        async def consume() -> None:
            async for number in receive:
                await anyio.sleep(0.1)
                seen.append(number)

        async with receive, anyio.create_task_group() as tasks, send:
            tasks.start_soon(consume)
            for number in range(10):
                await send.send(number)
        with anyio.move_on_after(5) as scope:
            await anyio.sleep_forever()
        assert scope.cancelled_caught
        with pytest.raises(TimeoutError), anyio.fail_after(5):
            await anyio.sleep(6)
        assert anyio.current_time() == pytest.approx(11.0)
        return seen

    assert run_simulated(main, seed=seed).value == list(range(10))


@pytest.mark.parametrize("seed", range(10))
def test_asyncio_timeouts_queues_and_groups_work_unchanged(seed: int) -> None:
    async def main() -> int:
        line: asyncio.Queue[int] = asyncio.Queue(1)
        async with asyncio.TaskGroup() as tasks:
            for _ in range(2):
                tasks.create_task(line.put(1))
                tasks.create_task(line.get())
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(2):
                await asyncio.sleep(3)
        return await asyncio.wait_for(asyncio.sleep(1, 7), 2)

    result = run_simulated(main, seed=seed)
    assert (result.value, result.ended_s) == (7, 3)


OUTSIDE: dict[str, Callable[[], object]] = {
    "connect": lambda: asyncio.open_connection("127.0.0.1", 1),
    "listen": lambda: asyncio.start_server(lambda r, w: None, "127.0.0.1", 0),
    "resolve": lambda: sim_loop().getaddrinfo("localhost", 80),
    "executor": lambda: sim_loop().run_in_executor(None, print),
    "asyncio thread": lambda: asyncio.to_thread(print),
    "anyio thread": lambda: anyio.to_thread.run_sync(print),
    "bare thread": lambda: threading.Thread(target=print).start(),
    "signal": lambda: sim_loop().add_signal_handler(signal.SIGUSR1, print),
    "process": lambda: asyncio.create_subprocess_exec("true"),
    "socket": lambda: sim_loop().sock_connect(None, ("127.0.0.1", 1)),  # type: ignore[arg-type]
}


async def reach(what: str) -> None:
    given = OUTSIDE[what]()
    if isinstance(given, Awaitable):
        await given


@pytest.mark.parametrize("what", OUTSIDE)
def test_what_reaches_outside_is_refused(what: str) -> None:
    with pytest.raises(NotSimulated):
        run_simulated(lambda: reach(what), seed=1)


def test_only_a_callback_from_another_thread_is_refused() -> None:
    loops: queue.Queue[asyncio.AbstractEventLoop] = queue.Queue()
    refused = threading.Event()

    def call_in() -> None:
        try:
            loops.get(timeout=10).call_soon_threadsafe(print)
        except NotSimulated:
            refused.set()

    run_simulated(lambda: ticks("a", 1), seed=1)  # leaves threads as they were
    thread = threading.Thread(target=call_in)
    thread.start()

    async def main() -> None:
        loops.put(sim_loop())
        thread.join(10)
        sim_loop().call_soon_threadsafe(int)

    run_simulated(main, seed=1)
    assert refused.is_set()


def test_an_error_carries_the_seed_that_found_it() -> None:
    async def main() -> None:
        await asyncio.sleep(1.5)
        raise LookupError("lost")

    with pytest.raises(LookupError) as caught:
        run_simulated(main, seed=77)
    assert caught.value.__notes__ == ["simulated with seed=77, at 1.500000 virtual seconds"]


def test_an_error_in_a_callback_is_reported() -> None:
    async def main() -> None:
        sim_loop().call_soon(lambda: 1 / 0)
        await asyncio.sleep(1)

    (error,) = run_simulated(main, seed=1).loop_errors
    assert "ZeroDivisionError" in error


def test_tasks_left_over_clean_up_in_virtual_time() -> None:
    cleaned: list[float] = []

    async def straggle() -> None:
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(1_000)
        await asyncio.sleep(7)
        cleaned.append(sim_loop().time())

    async def main() -> None:
        sim_loop().create_task(straggle())
        await asyncio.sleep(1)

    assert run_simulated(main, seed=1).ended_s == 1
    assert cleaned == [8]


def test_a_task_that_will_not_be_cancelled_does_not_hold_the_run() -> None:
    async def main() -> None:
        while True:
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(1)

    assert not run_simulated(main, seed=1, until_s=5).finished


def test_open_generators_are_closed() -> None:
    closed: list[bool] = []

    async def numbers() -> AsyncIterator[int]:
        try:
            yield 1
        finally:
            closed.append(True)

    kept = numbers()

    async def main() -> int:
        return await anext(kept)

    assert (run_simulated(main, seed=1).value, closed) == (1, [True])


def test_a_planted_race_is_found_and_found_again() -> None:
    async def main() -> int:
        count = 0

        async def add(turns: int) -> None:
            nonlocal count
            for _ in range(turns):
                await asyncio.sleep(0)
            seen = count
            await asyncio.sleep(0)
            count = seen + 1

        await asyncio.gather(add(0), add(1))
        return count

    outcomes = [run_simulated(main, seed=seed).value for seed in range(50)]
    assert set(outcomes) == {1, 2}
    assert outcomes == [run_simulated(main, seed=seed).value for seed in range(50)]


def test_a_clock_runs_with_the_loop_and_its_wall_may_jump() -> None:
    async def main() -> list[tuple[int, int]]:
        clock = SimClock(sim_loop(), wall_base_ms=1_000_000)
        read = [(clock.monotonic_ms(), clock.wall_ms())]
        await asyncio.sleep(0.347)
        read.append((clock.monotonic_ms(), clock.wall_ms()))
        clock.jump_wall(-5_000)
        clock.jump_wall(1_000)
        SimClock(sim_loop()).jump_wall(9_999)  # another node's
        return [*read, (clock.monotonic_ms(), clock.wall_ms())]

    result = run_simulated(main, seed=1, start_s=5.0)
    assert result.value == [(5_000, 1_000_000), (5_347, 1_000_347), (5_347, 996_347)]


def test_a_real_loop_is_not_taken_for_a_simulated_one() -> None:
    async def main() -> None:
        with pytest.raises(SimulationError, match="not inside run_simulated"):
            sim_loop()

    asyncio.run(main())
