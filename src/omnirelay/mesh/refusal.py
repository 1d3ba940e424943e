"""What a caller is told when its turn failed or no turn is to be had."""

import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

from omnirelay.lease.answers import Answer, answer
from omnirelay.lease.commands import Inspect, ListDead, ReadStats
from omnirelay.lease.options import QueueOptions
from omnirelay.lease.state import QueueState
from omnirelay.mesh.calls import AnyCall, Call, Outcome
from omnirelay.mesh.turn import Turn
from omnirelay.model.errors import (
    Closed,
    Corrupt,
    DiskFull,
    InvalidOption,
    JournalError,
    JournalOwned,
    NotOwner,
    OmniRelayError,
    OutcomeUnknown,
    Recovering,
    TooLittleDurability,
    TooNew,
    Unavailable,
)

log = logging.getLogger(__name__)

FINAL = (Corrupt, InvalidOption, JournalOwned, TooLittleDurability, TooNew)
"""Failures that trying again cannot mend; a shard stops and says why."""


def commands_of(call: AnyCall) -> Sequence[object]:
    """As many as the call expects outcomes; a lease call expects one."""
    return call.commands if isinstance(call, Call) else (None,)


def refused(call: AnyCall, refusal: OmniRelayError) -> list[Outcome]:
    """Outcomes of a call that ends here: what earlier turns made durable stands, the rest is
    `refusal`."""
    kept = call.outcomes[: call.settled] if isinstance(call, Call) else []
    return [*kept, *[refusal] * (len(commands_of(call)) - len(kept))]


def refuse(calls: Iterable[AnyCall], refusal: OmniRelayError) -> None:
    for call in calls:
        call.reply(refused(call, refusal))


def answer_rest(
    call: AnyCall, refusal: OmniRelayError, read: Callable[[object], Outcome | None]
) -> None:
    """A call that will be decided no further: what it only reads is answered, if that is known."""
    known = call.outcomes if isinstance(call, Call) else []
    rest = commands_of(call)[len(known) :]
    call.reply([*known, *(read(command) or refusal for command in rest)])


def refuse_turn(turn: Turn, refusal: OmniRelayError) -> None:
    """Its append failed: nothing that it decided stands."""
    for parted in turn.parted:
        parted.outcomes = refused(parted, refusal)[: len(parted.outcomes)]
    refuse((call for call, _ in turn.replies), refusal)


def append_refusal(error: OmniRelayError) -> OmniRelayError:
    """What a caller of a turn whose append failed may believe."""
    if isinstance(error, DiskFull | OutcomeUnknown):
        return error
    if isinstance(error, JournalError):  # fenced, taken: nothing was written by this turn
        return NotOwner(f"nothing was changed: {error.message}")
    return OutcomeUnknown(f"the journal did not confirm: {error.message}")


def never_written(error: OmniRelayError) -> OmniRelayError:
    """What a caller of the turn behind the one whose append failed may believe."""
    if isinstance(error, DiskFull):
        return error
    kind = NotOwner if isinstance(error, JournalError) else Unavailable
    return kind(f"nothing was changed: what came before it failed: {error.message}")


def not_serving(name: str, error: OmniRelayError) -> OmniRelayError:
    if isinstance(error, DiskFull | Closed | Corrupt | InvalidOption | JournalOwned | NotOwner):
        return error
    return Recovering(
        f"shard {name} is recovering: {error.message}; nothing was changed, try again"
    )


def told_of_bug(
    name: str,
    bug: Exception,
    concerned: Sequence[AnyCall],
    refuse_waiting: Callable[[OmniRelayError], Sequence[AnyCall]],
) -> OmniRelayError:
    """Those `concerned` by a turn that could not be played hear of it, and all who wait."""
    log.error("shard %s met a bug", name, exc_info=bug)
    error = OmniRelayError(f"nothing was changed: {type(bug).__name__}, see the node's log")
    waiting = refuse_waiting(error)
    refuse([call for call in concerned if call not in waiting], error)
    return error


def served_elsewhere(name: str, state: QueueState, *, is_caught_up: bool) -> OmniRelayError:
    """What a node says that follows the journal of another."""
    if is_caught_up and state.epoch:
        return NotOwner(f"shard {name} is served by node {state.node}")
    return Recovering(f"shard {name} is catching up; try again")


def ended(name: str, failure: OmniRelayError | None) -> OmniRelayError:
    """Why a shard that has ended serves no more: its own failure, if it had one."""
    if failure is None or isinstance(failure, NotOwner | Recovering):
        return Closed(f"shard {name} is closed")
    return failure


@contextmanager
def nobody_left_waiting(name: str, under_way: deque[Turn]) -> Iterator[None]:
    """What no store and no decision should raise ends the term as a failed append does: the callers
    of the turns `under_way` hear that nobody knows, and the journal says what is true."""
    try:
        yield
    except OmniRelayError:
        raise
    except Exception as bug:
        log.exception("shard %s met a bug", name)
        error = OutcomeUnknown(f"the turn met a {type(bug).__name__}, see the node's log")
        for turn in under_way:
            refuse_turn(turn, error)
        raise error from bug
    finally:
        under_way.clear()


def read_only(state: QueueState, command: object, now: int, options: QueueOptions) -> Answer | None:
    """The answer to a command that changes nothing; None for any other, and for one refused."""
    if not isinstance(command, ReadStats | Inspect | ListDead):
        return None
    try:
        found = answer(state, command, (), now, options)
    except OmniRelayError:
        return None
    assert isinstance(found, Answer)
    return found
