"""A shard: one state, one journal, one task that turns. Decide, append, then answer.

Calls come in from any thread through `offer`; outcomes go out through each call's `reply`, on the
shard's own thread, after the append that carries them. A failed append ends the term: every caller
of that turn hears what is known, the shard leaves service, recovers from the journal and starts a
new epoch.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence

import msgspec

from omnirelay.journal.backend import JournalBackend
from omnirelay.journal.bell import Bell
from omnirelay.journal.writer import Writer
from omnirelay.lease.answers import Answer, answer
from omnirelay.lease.commands import Inspect, ListDead, ReadStats, StartEpoch
from omnirelay.lease.options import QueueOptions
from omnirelay.lease.state import QueueState
from omnirelay.mesh.calls import AnyCall as AnyCall
from omnirelay.mesh.calls import Call, LeaseCall, Outcome
from omnirelay.mesh.keeper import Keeper, KeepOptions, Slowest
from omnirelay.mesh.recovery import recover
from omnirelay.mesh.refusal import append_refusal, commands_of, not_serving
from omnirelay.mesh.rest import LoopRest, Rest
from omnirelay.mesh.turn import Turn
from omnirelay.mesh.waiters import EnqueueWaiters, LeaseWaiters
from omnirelay.model import limits
from omnirelay.model.errors import (
    Closed,
    Corrupt,
    JournalOwned,
    OmniRelayError,
    Overloaded,
    TooLittleDurability,
)
from omnirelay.model.items import Token
from omnirelay.model.ports import Clock, Ids, ShardClock, failpoint

log = logging.getLogger(__name__)

_READS = (ReadStats, Inspect, ListDead)
_FINAL = (Corrupt, JournalOwned, TooLittleDurability)
"""Failures that trying again cannot mend; the shard stops and says why."""


class ShardOptions(msgspec.Struct, frozen=True, kw_only=True):
    node: str
    queue: QueueOptions = QueueOptions()
    keep: KeepOptions = KeepOptions()
    require: str | None = None
    """The least the journal must survive: process_kill, power_loss or node_loss."""
    retry_min_s: float = 0.05
    retry_max_s: float = 2.0


async def _nobody() -> int | None:
    return None


class Shard:
    def __init__(
        self,
        backend: JournalBackend,
        options: ShardOptions,
        *,
        clock: Clock,
        ids: Ids,
        slowest: Slowest = _nobody,
        rest: Rest | None = None,
        on_ready: Callable[[], None] | None = None,
        on_trouble: Callable[[OmniRelayError], None] | None = None,
    ) -> None:
        self.name = backend.shard
        self.bell = Bell()
        self.state = QueueState()
        self.ready = asyncio.Event()
        self.failure: OmniRelayError | None = None
        """Why the shard does not serve at present."""
        self._backend = backend
        self._options = options
        self._clock = clock
        self._time = ShardClock(clock)
        self._ids = ids
        self._slowest = slowest
        self._writer: Writer | None = None
        self._keeper = Keeper(backend, options.keep, slowest)
        self._inbox: deque[AnyCall] = deque()
        self._leases = LeaseWaiters()
        self._enqueues = EnqueueWaiters()
        self._rest = rest or LoopRest()
        self._is_resting = False
        self._on_ready = on_ready
        self._on_trouble = on_trouble
        self._stopping = False
        self._ended = False
        self._pause_s = options.retry_min_s

    # -- callers, from any thread -------------------------------------------------------------

    def offer(self, call: AnyCall) -> None:
        """Hand in a call. Its reply comes later, on the shard's thread. Raises Overloaded, or
        Closed once the shard stops."""
        if self._stopping:
            raise Closed(f"shard {self.name} is closed")
        if len(self._inbox) >= limits.INBOX_MAX:
            raise Overloaded(f"shard {self.name}: {limits.INBOX_MAX} calls are waiting; slow down")
        self._inbox.append(call)
        if self._is_resting:
            self._is_resting = False
            self._rest.wake()
        if self._ended:
            # It ended between our look and the append, so nobody else will answer this call.
            self._refuse_all(self.failure or Closed(f"shard {self.name} is closed"))

    def stop(self) -> None:
        """Finish what is in hand, then end `run`."""
        self._stopping = True
        self._rest.wake()

    # -- the task ---------------------------------------------------------------------------

    async def run(self) -> None:
        """Serve until `stop`, or until a failure that cannot be mended, which is raised."""
        self._pause_s = self._options.retry_min_s
        try:
            while not self._stopping:
                await self._serve_one_term()
        finally:
            self._stopping = self._ended = True
            self._refuse_all(self.failure or Closed(f"shard {self.name} is closed"))
            await self._backend.close()

    async def _serve_one_term(self) -> None:
        try:
            await self._take_office()
            self._pause_s = self._options.retry_min_s
            await self._serve()
        except OmniRelayError as error:
            self._step_down(error)
            if isinstance(error, _FINAL):
                raise
            await self._sleep(self._pause_s)
            self._pause_s = min(self._pause_s * 2, self._options.retry_max_s)

    async def _take_office(self) -> None:
        """Recover, then append the epoch that makes this node the writer."""
        await self._backend.open()
        durability = await self._backend.durability()
        durability.require(self._options.require, self._backend.name)
        recovered = await recover(self._backend)
        self.state = recovered.state
        head = await self._backend.head()
        self._time = ShardClock(self._clock, floor_ms=self.state.at)
        epoch = self.state.epoch + 1
        self._writer = Writer(self._backend, head, epoch=epoch, node=self._options.node)
        self._keeper = Keeper(self._backend, self._options.keep, self._slowest)
        self._keeper.snapshot_sequence = recovered.snapshot_sequence
        failpoint("shard.before_epoch")
        turn = self._turn()
        origin = self._ids.lease_id()
        turn.apply(StartEpoch(epoch=epoch, node=self._options.node, origin=origin))
        await self._commit(turn)
        self.failure = None
        self.ready.set()
        if self._on_ready is not None:
            self._on_ready()
        log.info("shard %s serves epoch %d from sequence %d", self.name, epoch, self._writer.last)

    def _step_down(self, error: OmniRelayError) -> None:
        self.ready.clear()
        self.failure = error
        self._writer = None
        log.warning("shard %s left service: %s", self.name, error.message)
        self._refuse_all(error)
        if self._on_trouble is not None:
            self._on_trouble(error)

    async def _serve(self) -> None:
        assert self._writer is not None
        while True:
            if not self._inbox and not self._is_due():
                if self._stopping:
                    return
                if self._keeper.is_busy:
                    await self._keeper.step(self._time.now_ms())
                    await self._rest.breathe()
                    continue
                await self._wait_for_calls()
                continue
            turn = self._turn()
            self._play_or_give_up(turn)
            await self._commit(turn)
            self._keeper.watch(self.state, self._writer.link)
            if self._keeper.is_busy:
                await self._keeper.step(turn.now)

    def _turn(self) -> Turn:
        return Turn(self.state, self._options.queue, self._ids, self._time.now_ms())

    def _play_or_give_up(self, turn: Turn) -> None:
        """A bug must neither leave its callers without an answer nor half of a decision in the
        state: they hear that nothing was changed, which recovery then makes true."""
        calls: list[AnyCall] = []
        try:
            self._play(turn, calls)
        except Exception as bug:
            log.exception("shard %s met a bug", self.name)
            error = OmniRelayError(f"nothing was changed: {type(bug).__name__}: {bug}")
            waiting = self._refuse_all(error)
            for call in calls:
                if call not in waiting:
                    call.reply((error,) * len(commands_of(call)))
            raise error from bug

    def _play(self, turn: Turn, calls: list[AnyCall]) -> None:
        inbox = self._inbox
        while inbox and len(calls) < limits.TURN_COMMANDS_MAX:
            calls.append(inbox.popleft())
        beats = turn.beat([call for call in calls if type(call) is Call])
        self._resume_enqueues(turn)
        for position, call in enumerate(calls):
            if turn.is_full:
                # What does not fit goes first in the next turn, in its old order.
                inbox.extendleft(reversed(calls[position:]))
                break
            if type(call) is Call:
                self._play_call(turn, call, beats)
            else:
                assert isinstance(call, LeaseCall)
                self._play_lease(turn, call)
        turn.expire()
        self._serve_waiters(turn)

    def _play_call(self, turn: Turn, call: Call, beats: dict[tuple[str, Token], Outcome]) -> None:
        if turn.handle(call, beats):
            return
        wait = self._options.queue.enqueue_wait_ms if call.wait_ms is None else call.wait_ms
        call.deadline = turn.now + wait
        self._enqueues.add(call)

    def _play_lease(self, turn: Turn, call: LeaseCall) -> None:
        if call.withdrawn:
            return
        if self._leases and call.wait_ms > 0 and self._has_elders(call):
            # Somebody has waited for the same work longer: take a place behind them.
            self._await_work(turn, call)
        elif not turn.lease(call):
            self._await_work(turn, call)

    def _has_elders(self, call: LeaseCall) -> bool:
        return self._leases.has_group(call.resource_types)

    def _await_work(self, turn: Turn, call: LeaseCall) -> None:
        if call.wait_ms <= 0:
            turn.give_up(call)
        elif len(self._leases) >= limits.WAITERS_MAX:
            why = f"shard {self.name}: {limits.WAITERS_MAX} lease calls are waiting"
            turn.replies.append((call, (Overloaded(why),)))
        else:
            call.deadline = turn.now + min(call.wait_ms, limits.WAIT_MS_MAX)
            self._leases.add(call)

    def _resume_enqueues(self, turn: Turn) -> None:
        while not self.state.paused and not turn.is_full:
            call = self._enqueues.pop()
            if call is None:
                break
            if not turn.handle(call, {}):
                self._enqueues.put_back(call)
                break

    def _serve_waiters(self, turn: Turn) -> None:
        state = self.state
        state.ripen(turn.now)
        while not turn.is_full and len(self._leases):
            call = self._leases.next_served(lambda types: state.lanes.first(types) is not None)
            if call is None:
                break
            served = turn.lease(call)
            assert served, "a waiter was told there is work"
        for call in self._leases.overdue(turn.now):
            turn.give_up(call)
        self._resume_enqueues(turn)
        for late in self._enqueues.overdue(turn.now):
            late.wait_ms = 0
            turn.handle(late, {})

    async def _commit(self, turn: Turn) -> None:
        assert self._writer is not None
        if turn.records:
            failpoint("shard.before_append")
            try:
                await self._writer.append(turn.records, (turn.pending, turn.active), turn.now)
            except Exception as error:
                refusal = append_refusal(error)
                for call, _ in turn.replies:
                    call.reply((refusal,) * len(commands_of(call)))
                if isinstance(error, OmniRelayError):
                    raise
                raise refusal from error
            failpoint("shard.after_append")
            self.bell.ring(self._writer.last)
        for call, outcomes in turn.replies:
            call.reply(outcomes)
        failpoint("shard.after_reply")

    # -- waiting ------------------------------------------------------------------------------

    def _is_due(self) -> bool:
        at = self._next_at()
        return at is not None and at <= self._time.now_ms()

    def _next_at(self) -> int | None:
        expiry = self.state.deadlines.next_at()
        times = [
            None if expiry is None else expiry + self._options.queue.sweep_interval_ms,
            self._leases.next_deadline(),
            self._enqueues.next_deadline(),
            self.state.next_ripe_at() if len(self._leases) else None,
        ]
        return min((at for at in times if at is not None), default=None)

    async def _wait_for_calls(self) -> None:
        """Sleep until a call comes in or something is due."""
        at = self._next_at()
        timeout_s = None if at is None else max(0, at - self._time.now_ms()) / 1000
        self._is_resting = True
        if not self._inbox and not self._stopping:  # nothing came between the last look and now
            await self._rest.wait(timeout_s)
        self._is_resting = False

    async def _sleep(self, seconds: float) -> None:
        """Pause between two attempts to take office; reads are answered meanwhile."""
        until = self._clock.monotonic_ms() + round(seconds * 1000)
        while not self._stopping and (left := until - self._clock.monotonic_ms()) > 0:
            self._is_resting = True
            if not self._inbox:
                await self._rest.wait(left / 1000)
            self._is_resting = False
            assert self.failure is not None
            self._refuse_all(self.failure)

    # -- saying no ----------------------------------------------------------------------------

    def _refuse_all(self, error: OmniRelayError) -> Sequence[AnyCall]:
        waiting: list[AnyCall] = [*self._leases.clear(), *self._enqueues.clear()]
        while self._inbox:
            try:
                waiting.append(self._inbox.popleft())
            except IndexError:
                break  # a late caller's thread has answered it
        refusal = not_serving(self.name, error)
        for call in waiting:
            call.reply([self._read(command) or refusal for command in commands_of(call)])
        return waiting

    def _read(self, command: object) -> Answer | None:
        """Reads are answered from what was recovered, even while nothing can be written."""
        if not isinstance(command, _READS) or isinstance(self.failure, _FINAL):
            return None
        if self.state.sequence == 0:
            return None
        try:
            found = answer(self.state, command, (), self._time.now_ms(), self._options.queue)
        except OmniRelayError:
            return None
        assert isinstance(found, Answer)
        return found
