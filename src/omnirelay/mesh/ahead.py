"""The next turn is played while a server still confirms the last one.

A turn decides against a state that holds whatever was decided before it, durable or not; nothing is
answered before it is durable, and turns are appended in their order. So to play one while another
is on its way changes nothing that anybody can see, and the node computes where it would wait. If
the append fails, the turn behind it was never written, and its callers hear just that.
"""

import asyncio
from collections import deque
from collections.abc import Callable

from omnirelay.mesh.calls import AnyCall, asked_in
from omnirelay.mesh.keeper import Keeper
from omnirelay.mesh.refusal import append_refusal, never_written, refuse_turn
from omnirelay.mesh.term import Term
from omnirelay.mesh.turn import Turn
from omnirelay.model import limits
from omnirelay.model.errors import OmniRelayError

MOMENT_S = 0.001
"""In which an append leaves this process, and more calls come."""

Inbox = deque[AnyCall]
Play = Callable[[], Turn]
"""Raises OmniRelayError when its callers, and all who wait, have heard of it."""


async def take_turns(term: Term, inbox: Inbox, play: Play, *, is_held: Callable[[], bool]) -> None:
    """A turn, and those that were played before the one before them was durable. All are durable
    when this returns. `is_held`: play nothing more. Raises what the journal and `play` raise."""
    turn: Turn | None = play()
    keeping = _Keeping(term.keeper)
    try:
        while turn is not None:
            # A call that was decided in part, and waits for room, belongs to one turn at a time.
            if turn.parted:
                await term.commit(turn)
                break
            keeping.go_on(term.time.now_ms())
            turn = await _commit_and_play(
                term, turn, play, lambda: not is_held() and term.may_run_ahead() and is_rush(inbox)
            )
        await keeping.finish()
    finally:
        await keeping.leave()


class _Keeping:
    """The parts of a snapshot leave beside the appends, one at a time: it holds what was, whatever
    is decided meanwhile."""

    def __init__(self, keeper: Keeper) -> None:
        self._keeper = keeper
        self._step: asyncio.Future[None] | None = None

    def go_on(self, now: int) -> None:
        """Raises what the last one met."""
        if self._step is not None and self._step.done():
            step, self._step = self._step, None
            step.result()
        if self._step is None and self._keeper.is_writing:
            self._step = asyncio.ensure_future(self._keeper.step(now))

    async def finish(self) -> None:
        if self._step is not None:
            await self._step

    async def leave(self) -> None:
        """The term may be over: nobody asks what became of it."""
        if self._step is not None and not self._step.done():
            self._step.cancel()
            await asyncio.wait((self._step,))


async def _commit_and_play(
    term: Term, turn: Turn, play: Play, may_play: Callable[[], bool]
) -> Turn | None:
    """Commit `turn`. Returns the one that was played meanwhile, if any: it is next."""
    appending = asyncio.ensure_future(term.append(turn))
    found: Turn | OmniRelayError | None = None
    try:
        found = await _played_before(term, appending, play, may_play)
        await appending
    except OmniRelayError as error:
        refuse_turn(turn, append_refusal(error))
        if isinstance(found, Turn):
            refuse_turn(found, never_written(error))
        raise
    finally:
        appending.cancel()
    term.settle(turn, is_level=found is None)
    if isinstance(found, OmniRelayError):
        raise found
    return found


async def _played_before(
    term: Term, appending: "asyncio.Future[None]", play: Play, may_play: Callable[[], bool]
) -> Turn | OmniRelayError | None:
    """None: the append was done before there was anything worth it."""
    moment_s = MOMENT_S
    while not appending.done():
        await asyncio.wait((appending,), timeout=moment_s)
        moment_s *= 2  # a slow server is not asked all the time
        if appending.done() or not may_play():
            continue
        try:
            turn = play()
        except OmniRelayError as bug:
            return bug  # what was before it stands all the same
        term.seal(turn)
        return turn
    return None


def is_rush(inbox: Inbox) -> bool:
    """Enough waits for a turn of its own."""
    return asked_in(inbox, limits.AHEAD_COMMANDS_MIN) >= limits.AHEAD_COMMANDS_MIN
