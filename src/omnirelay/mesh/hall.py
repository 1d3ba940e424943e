"""Where calls wait that a turn could not serve: lease calls for work, enqueues for room."""

from collections import deque

from omnirelay.lease.commands import Enqueue
from omnirelay.lease.options import QueueOptions
from omnirelay.mesh.calls import AnyCall, Call, LeaseCall, Outcome
from omnirelay.mesh.refusal import refused
from omnirelay.mesh.turn import Turn
from omnirelay.mesh.waiters import EnqueueWaiters, LeaseWaiters
from omnirelay.model import limits
from omnirelay.model.errors import OmniRelayError, Overloaded
from omnirelay.model.items import Token

Beats = dict[tuple[str, Token], Outcome]


class Hall:
    def __init__(self, options: QueueOptions) -> None:
        self._options = options
        self._leases = LeaseWaiters()
        self._enqueues = EnqueueWaiters()
        self.closed: OmniRelayError | None = None
        """Why no new work is taken at present."""
        self.is_empty = True
        """Nobody waits, so a turn need not look in. May still be False when the last has left."""

    def play(self, turn: Turn, inbox: deque[AnyCall], calls: list[AnyCall]) -> None:
        """One turn, all of it but the append. `calls` is filled with what it took from `inbox`."""
        while inbox and len(calls) < limits.TURN_COMMANDS_MAX:
            calls.append(inbox.popleft())
        beats = turn.beat(calls)
        if not self.is_empty:
            self.resume_enqueues(turn)
        looked_at = -1
        for position, call in enumerate(calls):
            if not self.is_empty and type(call) is LeaseCall and looked_at != len(turn.records):
                # What has become free is first for those who wait longer, whatever their types.
                self._serve_leases(turn)
                looked_at = len(turn.records)
            if turn.is_full:
                # What does not fit goes first in the next turn, in its old order.
                inbox.extendleft(reversed(calls[position:]))
                break
            self.serve(turn, call, beats)
        if turn.state.active:
            turn.expire()
        if not self.is_empty:
            self.serve_waiters(turn)

    def serve(self, turn: Turn, call: AnyCall, beats: Beats) -> None:
        """Decide one call in this turn, or let it wait."""
        if self.closed is not None and _is_new_work(call):
            turn.replies.append((call, refused(call, self.closed)))
            return
        if type(call) is Call:
            if not turn.handle(call, beats):
                self._await_room(turn, call)
            return
        assert isinstance(call, LeaseCall)
        if call.withdrawn:
            return
        if not turn.lease(call):
            self._await_work(turn, call)

    def _await_room(self, turn: Turn, call: Call) -> None:
        if len(self._enqueues) >= limits.WAITERS_MAX:
            _refuse_rest(turn, call)
            return
        wait = self._options.enqueue_wait_ms if call.wait_ms is None else call.wait_ms
        call.deadline = turn.now + wait
        self.is_empty = False
        self._enqueues.add(call)

    def _await_work(self, turn: Turn, call: LeaseCall) -> None:
        if call.wait_ms <= 0:
            turn.give_up(call)
        elif len(self._leases) >= limits.WAITERS_MAX:
            why = f"{limits.WAITERS_MAX} lease calls are waiting"
            turn.replies.append((call, (Overloaded(why),)))
        else:
            call.deadline = turn.now + min(call.wait_ms, limits.WAIT_MS_MAX)
            self.is_empty = False
            self._leases.add(call)

    def resume_enqueues(self, turn: Turn) -> None:
        """Those that met backpressure go on, in order, as far as there is room now."""
        if not len(self._enqueues):
            return
        while not turn.state.paused and not turn.is_full:
            call = self._enqueues.pop()
            if call is None:
                break
            if call.withdrawn:
                continue  # its caller was told nothing, or that it is too late
            if not turn.handle(call, {}):
                self._enqueues.put_back(call)
                break

    def serve_waiters(self, turn: Turn) -> None:
        """Grant to who waits what has become free, and send away whose time is up."""
        if self.closed is not None:
            self._send_away(turn, self.closed)
        self._serve_leases(turn)
        for gone in self._leases.overdue(turn.now):
            turn.give_up(gone)
        if len(self._enqueues):
            self.resume_enqueues(turn)
            for late in self._enqueues.overdue(turn.now):
                if not late.withdrawn:
                    _refuse_rest(turn, late)
        self.is_empty = not len(self._leases) and not len(self._enqueues)

    def _send_away(self, turn: Turn, why: OmniRelayError) -> None:
        for call in self.clear():
            turn.replies.append((call, refused(call, why)))

    def _serve_leases(self, turn: Turn) -> None:
        if not len(self._leases) or self.closed is not None:
            return
        state = turn.state
        state.ripen(turn.now)
        while not turn.is_full and len(self._leases):
            call = self._leases.next_served(lambda types: state.lanes.first(types) is not None)
            if call is None:
                break
            served = turn.lease(call)
            assert served, "a waiter was told there is work"

    def next_at(self, ripe_at: int | None) -> int | None:
        """When somebody here must be looked at next; `ripe_at` is when work comes due."""
        if self.is_empty:
            return None
        if not len(self._leases) and not len(self._enqueues):
            return None
        if self.closed is not None:
            return 0
        times = (
            self._leases.next_deadline(),
            self._enqueues.next_deadline(),
            ripe_at if len(self._leases) else None,
        )
        return min((at for at in times if at is not None), default=None)

    def clear(self) -> list[AnyCall]:
        calls: list[AnyCall] = [*self._leases.clear(), *self._enqueues.clear()]
        self.is_empty = True
        return calls


def _refuse_rest(turn: Turn, call: Call) -> None:
    """Decide what is left of it without waiting for room."""
    call.wait_ms = 0
    turn.handle(call, {})


def _is_new_work(call: AnyCall) -> bool:
    return type(call) is not Call or any(type(command) is Enqueue for command in call.commands)
