"""A shard over a store that blocks, whose turns other threads may take while its own task rests.

Whoever takes a turn holds the state from `begin` to `leave`. Between the two it may decide a second
turn while the first is being made durable on yet another thread; turns are appended, and answered,
in the order they were begun.
"""

import threading
from typing import Any

from omnirelay.mesh.ahead import is_rush
from omnirelay.mesh.calls import AnyCall
from omnirelay.mesh.refusal import append_refusal, never_written, refuse, refuse_turn
from omnirelay.mesh.rest import run_now
from omnirelay.mesh.shard import Shard
from omnirelay.mesh.turn import Turn
from omnirelay.model import limits
from omnirelay.model.errors import OmniRelayError, OutcomeUnknown


class DrivenShard(Shard):
    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._turning = threading.Lock()
        """Held by whoever may touch the state: the task, except while it rests, or a driver."""
        self._turning.acquire()
        self._passed_over = 0
        """Turns that drivers have taken since the task had something to do."""
        self._broken: OmniRelayError | None = None
        """How a driver's turn failed; the task ends its term with it."""

    def offer_and_drive(self, call: AnyCall) -> None:
        """Like `offer`, for a caller that blocks anyway: if the shard rests, this thread takes the
        turn itself, which saves a lone caller two changes of thread."""
        self.put(call)
        while self.drive():
            pass

    def drive(self) -> bool:
        """Take a turn that `put` calls wait for, or let the task take it if it is at it. True:
        there are more for this thread to take."""
        turn = self.begin()
        return turn is not None and self.commit(turn)

    def commit(self, turn: Turn) -> bool:
        """The rest of a turn that was begun. True: there are more for this thread to take."""
        try:
            self.finish(turn, self.append(turn))
        except BaseException as error:
            self.give_up([turn], error)
            raise
        finally:
            has_more = self.leave()
        return has_more

    # -- step by step ---------------------------------------------------------------------------

    def begin(self) -> Turn | None:
        """Decide what waits; `append`, `finish` and `leave` follow. None: the task sees to it."""
        if not self._inbox:
            return None
        # Who comes back at once may take the lock again and again before the task is awake: then
        # nothing would be saved or pruned for as long as the rush lasts.
        is_its_turn = self._passed_over >= limits.PASSED_OVER_MAX
        if is_its_turn or not self._turning.acquire(blocking=False):
            self._wake()
            return None
        # Without a term, or after one that broke, the task refuses what waits.
        turn = None if self._broken is not None else self._decided()
        if turn is None:
            self._turning.release()
            self._wake()
        return turn

    def begin_ahead(self, last: Turn) -> Turn | None:
        """Decide the turn behind `last`, which is still being appended. None: it does not pay, or
        something else has to come first."""
        term = self._term
        assert term is not None
        # A call that was decided in part, and waits for room, belongs to one turn at a time.
        must_wait = self._broken is not None or last.parted or term.keeper.is_wanted(term.state)
        if must_wait or not is_rush(self._inbox):
            return None
        return self._decided()

    def _decided(self) -> Turn | None:
        term = self._term
        if term is None:
            return None
        turn = term.turn()
        calls: list[AnyCall] = []
        try:
            self._play_or_give_up(term, turn, calls)
            term.seal(turn)  # here, in the order of turns, whoever appends it
        except OmniRelayError as error:
            self._broken = error
            return None
        except BaseException as error:
            self._give_up(turn, calls, error)
            raise
        return turn

    def append(self, turn: Turn) -> OmniRelayError | None:
        """Make it durable, on any thread. Returns how that failed."""
        assert self._term is not None
        try:
            run_now(self._term.append(turn))
        except OmniRelayError as error:
            return error
        return None

    def finish(self, turn: Turn, failure: OmniRelayError | None, ahead: Turn | None = None) -> None:
        """Let its answers go. If its append failed, `ahead`, the turn behind it, is over too."""
        assert self._term is not None
        if failure is None:
            self._term.settle(turn, is_level=ahead is None)
            return
        self._broken = failure
        refuse_turn(turn, append_refusal(failure))
        if ahead is not None:
            refuse_turn(ahead, never_written(failure))

    def give_up(self, turns: list[Turn], error: BaseException) -> None:
        for turn in turns:
            self._give_up(turn, [], error)

    def _give_up(self, turn: Turn, calls: list[AnyCall], error: BaseException) -> None:
        """Interrupted between two steps: only the journal knows what is true now."""
        self._broken = OutcomeUnknown(f"a turn was interrupted: {type(error).__name__}")
        refuse(turn.concerned(calls), self._broken)

    def leave(self) -> bool:
        """The state is the task's again. True: there are more calls for this thread to take."""
        needs_task = self._needs_task()
        self._passed_over = self._passed_over + 1 if needs_task else 0
        self._turning.release()
        has_more = bool(self._inbox) and not needs_task
        if not has_more and (self._inbox or needs_task):
            self._wake()
        return has_more

    def _needs_task(self) -> bool:
        """Whether a driver's turn left something to do before the task meant to wake."""
        term = self._term
        if self._broken is not None or term is None or term.keeper.is_busy:
            return True
        if not self.state.active and self._hall.is_empty:
            return False  # nobody waits and nothing can expire
        at, planned = term.next_at(self._hall), self._rests_until
        return at is not None and (planned is None or at < planned)

    # -- the task -------------------------------------------------------------------------------

    async def _lie_down(self, timeout_s: float | None) -> None:
        self._turning.release()
        try:
            await super()._lie_down(timeout_s)
        finally:
            self._turning.acquire()
            self._passed_over = 0
        if self._broken is not None:
            broken, self._broken = self._broken, None
            raise broken
