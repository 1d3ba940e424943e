"""An asyncio loop where time is a number and the order of events comes from a seed.

Nothing sleeps: when no callback is ready, the clock jumps to the next timer. Callbacks that are
ready in the same turn run in an order drawn from the seed, so one seed is one schedule, and a
failing schedule can be run again. What would reach outside (sockets, executors, threads, signals,
processes) raises `NotSimulated`, because its timing would come from the machine.

One seed gives one trace as long as the code under test takes time from the loop, chance from a
seeded generator, and does not let the order of a set decide in which order tasks are *created*
(`asyncio.as_completed` over bare coroutines does). The order in which existing tasks are woken
may come from a set, as in anyio's cancel scopes: each turn is sorted before it is permuted.
"""

import asyncio
import functools
import hashlib
import heapq
import random
import threading
import weakref
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import Any, Generic, Never, TypeVar

T = TypeVar("T")

# Turns at one instant after which time moves on by itself, as it would on a machine that spins.
# `while not done: await sleep(0)` next to a timer is such a program.
_TURNS_TILL_JUMP = 1_000
# Turns at one instant, with no timer to jump to, after which the program is declared stuck.
_TURNS_TILL_LIVELOCK = 50_000
# Virtual time that cancelled tasks get for their own clean-up before they are abandoned.
_CLEANUP_S = 3_600.0


class SimulationError(Exception):
    """Root of what the simulator itself says; never raised by the code under test."""


class Deadlock(SimulationError):
    """Nothing is ready, no timer is set, and tasks still wait."""

    def __init__(self, at_s: float, pending: tuple[str, ...]) -> None:
        self.at_s = at_s
        self.pending = pending
        super().__init__(f"deadlock at {at_s:.6f} s, nothing can happen: {'; '.join(pending)}")


class Livelock(SimulationError):
    """Callbacks keep each other busy, no timer is set, and time stands still."""

    def __init__(self, at_s: float, turns: int, pending: tuple[str, ...]) -> None:
        self.at_s = at_s
        self.turns = turns
        self.pending = pending
        super().__init__(f"livelock at {at_s:.6f} s after {turns} turns: {'; '.join(pending)}")


class NotSimulated(SimulationError):
    """The code under test reached for something that only the real machine has."""

    def __init__(self, what: str) -> None:
        self.what = what
        super().__init__(f"{what} is not simulated: its timing would not come from the seed")


class _HorizonReached(SimulationError):
    pass


@dataclass(frozen=True, slots=True)
class SimResult(Generic[T]):
    """How one schedule went. `value` is None when `until_s` ended the run before `main` did."""

    seed: int
    value: T | None
    finished: bool
    started_s: float
    ended_s: float
    callbacks: int
    fingerprint: str
    pending: tuple[str, ...]
    loop_errors: tuple[str, ...]

    @property
    def virtual_s(self) -> float:
        return self.ended_s - self.started_s


class SimLoop(asyncio.BaseEventLoop):
    """Virtual time and seeded order on top of CPython's own loop turn."""

    # Internals of BaseEventLoop that this class relies on; the tests fail when they change.
    _ready: deque[asyncio.Handle]
    _scheduled: list[asyncio.TimerHandle]
    _stopping: bool
    _thread_id: int | None
    _timer_cancelled_count: int

    def __init__(self, *, seed: int, start_s: float = 0.0) -> None:
        super().__init__()
        self.seed = seed
        self.start_s = start_s
        self.callbacks = 0
        self.errors: list[str] = []
        self._now = start_s
        self.horizon_s: float | None = None
        self.spins = 0
        self._random = random.Random(seed)
        # Swarm: some seeds draw every turn anew, others make certain tasks slow for the whole run.
        self._has_ranks = self._random.random() < 0.3
        self._ranks: dict[str, float] = {}
        self._trace = hashlib.blake2b(digest_size=16)
        self._labels = weakref.WeakKeyDictionary[asyncio.Task[Any], str]()
        self._tasks_made = 0
        self.set_debug(False)
        self.set_exception_handler(_note_error)

    def time(self) -> float:
        return self._now

    @property
    def fingerprint(self) -> str:
        """Hash of every callback run so far: its name, its order, its time."""
        return self._trace.hexdigest()

    def create_task(  # type: ignore[override]  # typeshed ties the signature to the version
        self, coro: Coroutine[Any, Any, T], **options: Any
    ) -> asyncio.Task[T]:
        task: asyncio.Task[T] = super().create_task(coro, **options)
        # asyncio numbers tasks per process, which would differ between two runs of one seed.
        self._tasks_made += 1
        name = getattr(coro, "__qualname__", type(coro).__qualname__)
        self._labels[task] = f"{name}#{self._tasks_made}"
        return task

    def call_soon_threadsafe(  # type: ignore[override]  # typeshed's is generic over arguments
        self, callback: Callable[..., object], *args: Any, context: Any = None
    ) -> asyncio.Handle:
        if self._thread_id is not None and threading.get_ident() != self._thread_id:
            raise NotSimulated("a callback from another thread")
        return self.call_soon(callback, *args, context=context)

    def _run_once(self) -> None:
        """CPython's turn without sockets, real time and debugging, which was half of what a run
        cost: move time, gather what is ready, permute it, run it."""
        if self._timer_cancelled_count > max(100, len(self._scheduled) // 2):
            self._drop_cancelled()
        while self._scheduled and self._scheduled[0]._cancelled:
            self._pop_timer()
        is_ready = self._ready or self._stopping
        if not is_ready and not self._scheduled:
            raise Deadlock(self._now, self.pending())
        if is_ready or self._scheduled[0].when() <= self._now:
            self._count_spin()
        else:
            self._jump()
        self._collect_due()
        self._permute()
        ready = self._ready
        for _ in range(len(ready)):
            handle = ready.popleft()
            if not handle._cancelled:
                handle._run()

    def _drop_cancelled(self) -> None:
        kept = [handle for handle in self._scheduled if not handle._cancelled]
        heapq.heapify(kept)
        self._scheduled, self._timer_cancelled_count = kept, 0

    def _jump(self) -> None:
        # The timer's own number, not now + timeout: the sum may round to just before it.
        when = self._scheduled[0].when()
        if self.horizon_s is not None and when > self.horizon_s:
            self._now = max(self._now, self.horizon_s)
            raise _HorizonReached
        if when > self._now:
            self._now = when
            self.spins = 0

    def _count_spin(self) -> None:
        self.spins += 1
        if self.spins < _TURNS_TILL_JUMP:
            return
        while self._scheduled and self._scheduled[0].cancelled():
            self._pop_timer()
        if self._scheduled:
            self._jump()
        elif self.spins >= _TURNS_TILL_LIVELOCK:
            raise Livelock(self._now, self.spins, self.pending())

    def _collect_due(self) -> None:
        while self._scheduled and self._scheduled[0].when() <= self._now:
            self._ready.append(self._pop_timer())

    def _pop_timer(self) -> asyncio.TimerHandle:
        handle = heapq.heappop(self._scheduled)
        if handle.cancelled():
            self._timer_cancelled_count -= 1
        handle._scheduled = False  # type: ignore[attr-defined]  # what BaseEventLoop does itself
        return handle

    def _permute(self) -> None:
        if len(self._ready) == 1 and not self._ready[0].cancelled():
            return self._note_turn([self._label(self._ready[0])])  # most turns are no more
        turn = [(self._label(handle), handle) for handle in self._ready if not handle.cancelled()]
        if len(turn) > 1:
            turn.sort(key=itemgetter(0))
            if self._has_ranks:
                turn.sort(key=self._rank)
            else:
                self._random.shuffle(turn)
        self._ready.clear()
        self._ready.extend(handle for _, handle in turn)
        return self._note_turn([label for label, _ in turn])

    def _note_turn(self, labels: list[str]) -> None:
        self.callbacks += len(labels)
        if labels:
            self._trace.update("\0".join([repr(self._now), *labels, "\n"]).encode())

    def _rank(self, entry: tuple[str, asyncio.Handle]) -> float:
        label = entry[0]
        if label not in self._ranks:
            self._ranks[label] = self._random.random()
        return self._ranks[label]

    def _label(self, handle: asyncio.Handle) -> str:
        callback: Any = handle._callback  # type: ignore[attr-defined]  # no public way to ask
        while isinstance(callback, functools.partial):
            callback = callback.func
        owner = getattr(callback, "__self__", None)
        if isinstance(owner, asyncio.Task):
            return self._labels.get(owner, "#0")
        return str(getattr(callback, "__qualname__", type(callback).__qualname__))

    def unfinished(self) -> list[asyncio.Task[Any]]:
        """Tasks that are not done, in order of creation."""
        tasks = asyncio.all_tasks(self)
        return sorted(tasks, key=lambda task: int(self._labels.get(task, "#0").rpartition("#")[2]))

    def pending(self) -> tuple[str, ...]:
        return tuple(f"{self._labels[task]} {_waits_at(task)}" for task in self.unfinished())


def _note_error(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    assert isinstance(loop, SimLoop)
    error = context.get("exception")
    loop.errors.append(f"{context['message']}: {error!r}" if error else context["message"])


def _waits_at(task: asyncio.Task[Any]) -> str:
    """The innermost line outside asyncio and anyio where the task is suspended."""
    place = ""
    inner: Any = task.get_coro()
    while inner is not None:
        frame = getattr(inner, "cr_frame", None) or getattr(inner, "gi_frame", None)
        inner = getattr(inner, "cr_await", None) or getattr(inner, "gi_yieldfrom", None)
        if frame is None:
            continue
        file = frame.f_code.co_filename
        if not place or not {"asyncio", "anyio"} & set(Path(file).parts):
            place = f"({file}:{frame.f_lineno} in {frame.f_code.co_name})"
    return place


def _refusal(name: str) -> Callable[..., Never]:
    def refuse(self: SimLoop, *args: Any, **options: Any) -> Never:
        raise NotSimulated(f"loop.{name}()")

    return refuse


_OUTSIDE = (
    "add_reader add_writer remove_reader remove_writer add_signal_handler remove_signal_handler "
    "sock_recv sock_recv_into sock_recvfrom sock_recvfrom_into sock_sendall sock_sendto "
    "sock_connect sock_accept sock_sendfile sendfile start_tls connect_accepted_socket "
    "create_connection create_server create_unix_connection create_unix_server "
    "create_datagram_endpoint connect_read_pipe connect_write_pipe subprocess_shell "
    "subprocess_exec getaddrinfo getnameinfo run_in_executor set_default_executor"
)
for _name in _OUTSIDE.split():
    setattr(SimLoop, _name, _refusal(_name))


class SimClock:
    """The clock of one simulated node. Both hands run with the loop; only the wall may jump."""

    def __init__(self, loop: SimLoop, *, wall_base_ms: int = 1_700_000_000_000) -> None:
        self._loop = loop
        self._wall_base_ms = wall_base_ms
        self._jumped_ms = 0

    def monotonic_ms(self) -> int:
        return _milliseconds(self._loop.time())

    def wall_ms(self) -> int:
        elapsed_ms = self.monotonic_ms() - _milliseconds(self._loop.start_s)
        return self._wall_base_ms + elapsed_ms + self._jumped_ms

    def jump_wall(self, ms: int) -> None:
        """Set the wall clock forward, or back when negative, as NTP or an operator would."""
        self._jumped_ms += ms


def _milliseconds(seconds: float) -> int:
    # Through microseconds, because 5.347 times 1000 falls short of 5347.
    return round(seconds * 1_000_000) // 1000


def sim_loop() -> SimLoop:
    """The simulated loop this code runs on, for a `SimClock`."""
    loop = asyncio.get_running_loop()
    if not isinstance(loop, SimLoop):
        raise SimulationError(f"not inside run_simulated: the loop is a {type(loop).__name__}")
    return loop


def run_simulated(
    main: Callable[[], Coroutine[Any, Any, T]],
    *,
    seed: int,
    until_s: float | None = None,
    start_s: float = 0.0,
    make_loop: type[SimLoop] = SimLoop,
) -> SimResult[T]:
    """Run `main()` to its end, or for `until_s` virtual seconds, on the schedule of `seed`.

    Raises what `main` raises (with a note naming the seed), Deadlock or Livelock when the program
    is stuck, NotSimulated when it reaches outside. Tasks left over are cancelled and may clean up
    in virtual time; that part is no longer in the result.
    """
    loop = make_loop(seed=seed, start_s=start_s)
    loop.horizon_s = None if until_s is None else start_s + until_s
    try:
        with _threads_refused():
            return _run(loop, main)
    except BaseException as error:
        error.add_note(f"simulated with seed={seed}, at {loop.time():.6f} virtual seconds")
        raise
    finally:
        try:
            _clean_up(loop)
        finally:
            loop.close()


def _run(loop: SimLoop, main: Callable[[], Coroutine[Any, Any, T]]) -> SimResult[T]:
    value: T | None = None
    finished = True
    task = loop.create_task(main())
    try:
        value = loop.run_until_complete(task)
    except _HorizonReached:
        finished = False
    return SimResult(
        seed=loop.seed,
        value=value,
        finished=finished,
        started_s=loop.start_s,
        ended_s=loop.time(),
        callbacks=loop.callbacks,
        fingerprint=loop.fingerprint,
        pending=loop.pending(),
        loop_errors=tuple(loop.errors),
    )


def _clean_up(loop: SimLoop) -> None:
    loop.horizon_s, loop.spins = loop.time() + _CLEANUP_S, 0
    # Whatever stops the clean-up would hide the reason the run ended, which is already on its way.
    with suppress(SimulationError), _threads_refused():
        left = loop.unfinished()
        for task in left:
            task.cancel()
        if left:
            loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        loop.run_until_complete(loop.shutdown_asyncgens())


@contextmanager
def _threads_refused() -> Iterator[None]:
    """anyio.to_thread starts threads without asking the loop, so the loop cannot refuse them."""
    simulated = threading.get_ident()
    start = threading.Thread.start

    def refuse(thread: threading.Thread) -> None:
        if threading.get_ident() == simulated:
            raise NotSimulated(f"thread {thread.name!r}")
        start(thread)

    threading.Thread.start = refuse  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        threading.Thread.start = start  # type: ignore[method-assign]
