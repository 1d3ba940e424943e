"""A shard: one state, one journal, one task that turns. Decide, append, then answer.

Calls come in from any thread through `offer`; outcomes go out through each call's `reply`, on the
shard's own thread, after the append that carries them. A failed append ends the term: every caller
of that turn hears what is known, the shard leaves service, recovers from the journal and starts a
new epoch.
"""

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence

from omnirelay.journal.backend import Durability, Head, JournalBackend
from omnirelay.journal.bell import Bell
from omnirelay.journal.writer import Writer
from omnirelay.lease.answers import Answer, answer
from omnirelay.lease.commands import Inspect, ListDead, ReadStats, StartEpoch
from omnirelay.lease.state import QueueState
from omnirelay.mesh.calls import AnyCall
from omnirelay.mesh.hall import Hall
from omnirelay.mesh.keeper import Keeper, Slowest
from omnirelay.mesh.recovery import recover
from omnirelay.mesh.refusal import answer_rest, append_refusal, not_serving, refuse_turn, refused
from omnirelay.mesh.rest import LoopRest, Rest, run_now
from omnirelay.mesh.shard_options import ShardOptions
from omnirelay.mesh.tally import Tally
from omnirelay.mesh.turn import Turn
from omnirelay.model import limits
from omnirelay.model.errors import (
    Closed,
    Corrupt,
    InvalidOption,
    JournalOwned,
    OmniRelayError,
    OutcomeUnknown,
    Overloaded,
    TooLittleDurability,
)
from omnirelay.model.ports import Clock, Ids, ShardClock, failpoint

log = logging.getLogger(__name__)

_READS = (ReadStats, Inspect, ListDead)
_FINAL = (Corrupt, InvalidOption, JournalOwned, TooLittleDurability)
"""Failures that trying again cannot mend; the shard stops and says why."""


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
        self.tally = Tally()
        self.state = QueueState()
        self.ready = asyncio.Event()
        self.durability: Durability | None = None
        """What the journal states, once it is open."""
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
        self._hall = Hall(options.queue)
        self._rest = rest or LoopRest()
        self._is_resting = False
        self._rests_until: int | None = None
        self._turning = threading.Lock()
        """Held by whoever may touch the state: the task, except while it rests, or a driver."""
        self._turning.acquire()
        self._broken: OmniRelayError | None = None
        """How a driver's turn failed; the task ends its term with it."""
        self._on_ready = on_ready
        self._on_trouble = on_trouble
        self._stopping = False
        self._ended = False
        self._pause_s = options.retry_min_s
        self._is_as_recovered = False
        """The state is what the journal holds, no decision ahead of it."""

    # -- callers, from any thread -------------------------------------------------------------

    def offer(self, call: AnyCall) -> None:
        """Hand in a call. Its reply comes later, on the thread that takes its turn. Raises
        Overloaded, or Closed once the shard stops."""
        self.put(call)
        self._wake()

    def offer_and_drive(self, call: AnyCall) -> None:
        """The same for a caller that blocks anyway: if the shard rests, this thread takes the turn
        itself, and those of whoever comes meanwhile. Only over a store that blocks. It saves the
        two changes of thread that cost a lone caller more than its sync does."""
        self.put(call)
        self.drive()

    def drive(self) -> None:
        """Take the turns that `put` calls wait for, or let the task take them if it is at it."""
        needs_task = False
        try:
            while self._inbox and not needs_task and self._turning.acquire(blocking=False):
                try:
                    self._drive()
                finally:
                    needs_task = self._needs_task()
                    self._turning.release()
        finally:
            if self._inbox or needs_task:
                self._wake()

    def _drive(self) -> None:
        if self._broken is not None or self._writer is None:
            return  # the term is over; the task will refuse what waits
        turn = self._turn()
        calls: list[AnyCall] = []
        try:
            run_now(self._take_turn(turn, calls))
        except OmniRelayError as error:
            self._broken = error
        except BaseException as error:
            # Interrupted between two steps: only the journal knows what is true now.
            self._broken = OutcomeUnknown(f"a turn was interrupted: {type(error).__name__}")
            for call in turn.concerned(calls):
                call.reply(refused(call, self._broken))
            raise

    def _needs_task(self) -> bool:
        """Whether a driver's turn left something to do before the task meant to wake."""
        if self._broken is not None or self._writer is None or self._keeper.is_busy:
            return True
        if not self.state.active and self._hall.is_empty:
            return False  # nobody waits and nothing can expire
        at, planned = self._next_at(), self._rests_until
        return at is not None and (planned is None or at < planned)

    def put(self, call: AnyCall) -> None:
        """Hand in a call that `drive` will follow. Raises as `offer` does."""
        if self._stopping:
            raise Closed(f"shard {self.name} is closed")
        if len(self._inbox) >= limits.INBOX_MAX:
            raise Overloaded(f"shard {self.name}: {limits.INBOX_MAX} calls are waiting; slow down")
        self._inbox.append(call)
        if self._ended:
            # It ended between our look and the append, so nobody else will answer this call.
            self._refuse_all(self.failure or Closed(f"shard {self.name} is closed"))

    @property
    def waiting(self) -> int:
        return len(self._inbox)

    def _wake(self) -> None:
        if self._is_resting:
            self._is_resting = False
            self._rest.wake()

    def turn_away(self, why: OmniRelayError | None) -> None:
        """From now on new work is refused with `why`, and who waits for work is sent away with it;
        what is leased may be finished. None: everybody is welcome again."""
        self._hall.closed = why
        self._rest.wake()

    def now_ms(self) -> int:
        return self._time.now_ms()

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
        self.durability = await self._backend.durability()
        self.durability.require(self._options.require, self._backend.name)
        recovered = await recover(self._backend)
        self.state, self._is_as_recovered = recovered.state, True
        # From what was folded, not from a later look: what a rival appended since is unknown here,
        # and the first append must fail for it.
        chain = recovered.chain
        head = Head(chain.last, chain.epoch, chain.link or "")
        self._time = ShardClock(self._clock, floor_ms=self.state.at)
        epoch = self.state.epoch + 1
        self._writer = Writer(self._backend, head, epoch=epoch, node=self._options.node)
        self._keeper = Keeper(self._backend, self._options.keep, self._slowest)
        self._keeper.snapshot_sequence = recovered.snapshot_sequence
        failpoint("shard.before_epoch")
        origin = self._ids.lease_id()
        turn = self._turn()
        turn.decide_only(StartEpoch(epoch=epoch, node=self._options.node, origin=origin))
        await self._commit(turn)
        # Only now: while the epoch cannot be written, readers see what was recovered.
        self._is_as_recovered = False
        turn.evolve_decided()
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
            await self._take_turn(self._turn(), [])
            if self._keeper.is_busy:
                await self._keeper.step(self._time.now_ms())

    async def _take_turn(self, turn: Turn, calls: list[AnyCall]) -> None:
        """`calls` is filled with what the turn took from the inbox."""
        assert self._writer is not None
        self._play_or_give_up(turn, calls)
        await self._commit(turn)
        self._keeper.watch(self.state, self._writer.link)

    def _turn(self) -> Turn:
        return Turn(self.state, self._options.queue, self._ids, self._time.now_ms())

    def _play_or_give_up(self, turn: Turn, calls: list[AnyCall]) -> None:
        """A bug must neither leave its callers without an answer nor half of a decision in the
        state: they hear that nothing was changed, which recovery then makes true."""
        try:
            self._play(turn, calls)
        except Exception as bug:
            log.exception("shard %s met a bug", self.name)
            error = OmniRelayError(f"nothing was changed: {type(bug).__name__}, see the node's log")
            concerned = turn.concerned(calls)
            waiting = self._refuse_all(error)
            for call in concerned:
                if call not in waiting:
                    call.reply(refused(call, error))
            raise error from bug

    def _play(self, turn: Turn, calls: list[AnyCall]) -> None:
        inbox, hall = self._inbox, self._hall
        while inbox and len(calls) < limits.TURN_COMMANDS_MAX:
            calls.append(inbox.popleft())
        beats = turn.beat(calls)
        if not hall.is_empty:
            hall.resume_enqueues(turn)
        for position, call in enumerate(calls):
            if turn.is_full:
                # What does not fit goes first in the next turn, in its old order.
                inbox.extendleft(reversed(calls[position:]))
                break
            hall.serve(turn, call, beats)
        if self.state.active:
            turn.expire()
        if not hall.is_empty:
            hall.serve_waiters(turn)

    async def _commit(self, turn: Turn) -> None:
        assert self._writer is not None
        if turn.records:
            failpoint("shard.before_append")
            try:
                await self._writer.append(turn.records, (turn.pending, turn.active), turn.now)
            except Exception as error:
                refuse_turn(turn, refusal := append_refusal(error))
                if isinstance(error, OmniRelayError):
                    raise
                log.exception("shard %s: the journal failed", self.name)
                raise refusal from error
            failpoint("shard.after_append")
            self.bell.ring(self._writer.last)
            self.tally.note(turn.records, self.state)
            self.tally.append_s = self._writer.append_s
        for parted in turn.parted:
            parted.settled = len(parted.outcomes)
        for call, outcomes in turn.replies:
            call.reply(outcomes)
        failpoint("shard.after_reply")

    # -- waiting ------------------------------------------------------------------------------

    def _is_due(self) -> bool:
        at = self._next_at()
        return at is not None and at <= self._time.now_ms()

    def _next_at(self) -> int | None:
        times = [self._hall.next_at(self.state.next_ripe_at())]
        expiry = self.state.deadlines.next_at()
        if expiry is not None:
            times.append(expiry + self._options.queue.sweep_interval_ms)
        return min((at for at in times if at is not None), default=None)

    async def _wait_for_calls(self) -> None:
        """Sleep until a call comes in or something is due."""
        at = self._rests_until = self._next_at()
        timeout_s = None if at is None else max(0, at - self._time.now_ms()) / 1000
        self._is_resting = True
        if not self._inbox and not self._stopping:  # nothing came between the last look and now
            self._turning.release()
            try:
                await self._rest.wait(timeout_s)
            finally:
                self._turning.acquire()
        self._is_resting = False
        if self._broken is not None:
            broken, self._broken = self._broken, None
            raise broken

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
        waiting = self._hall.clear()
        while self._inbox:
            try:
                waiting.append(self._inbox.popleft())
            except IndexError:
                break  # a late caller's thread has answered it
        refusal = not_serving(self.name, error)
        for call in waiting:
            answer_rest(call, refusal, self._read)
        return waiting

    def _read(self, command: object) -> Answer | None:
        """Reads are answered from what was recovered, even while nothing can be written."""
        if not isinstance(command, _READS) or isinstance(self.failure, _FINAL):
            return None
        if not self._is_as_recovered or self.state.sequence == 0:
            return None
        try:
            found = answer(self.state, command, (), self._time.now_ms(), self._options.queue)
        except OmniRelayError:
            return None
        assert isinstance(found, Answer)
        return found
