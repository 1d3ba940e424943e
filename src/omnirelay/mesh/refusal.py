"""What a caller is told when its turn failed or no turn is to be had."""

from collections.abc import Callable, Sequence

from omnirelay.mesh.calls import AnyCall, Call, Outcome
from omnirelay.mesh.turn import Turn
from omnirelay.model.errors import (
    Closed,
    Corrupt,
    DiskFull,
    InvalidOption,
    JournalError,
    JournalOwned,
    OmniRelayError,
    OutcomeUnknown,
    Recovering,
    Unavailable,
)


def commands_of(call: AnyCall) -> Sequence[object]:
    """As many as the call expects outcomes; a lease call expects one."""
    return call.commands if isinstance(call, Call) else (None,)


def refused(call: AnyCall, refusal: OmniRelayError) -> list[Outcome]:
    """Outcomes of a call that ends here: what earlier turns made durable stands, the rest is
    `refusal`."""
    kept = call.outcomes[: call.settled] if isinstance(call, Call) else []
    return [*kept, *[refusal] * (len(commands_of(call)) - len(kept))]


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
    for call, _ in turn.replies:
        call.reply(refused(call, refusal))


def append_refusal(error: Exception) -> OmniRelayError:
    """What a caller of a turn whose append failed may believe."""
    if not isinstance(error, OmniRelayError):
        # Its text may name files or hold what others wrote; it stands in the log.
        return OutcomeUnknown(f"the journal failed: {type(error).__name__}")
    if isinstance(error, DiskFull | OutcomeUnknown):
        return error
    if isinstance(error, JournalError):  # fenced, taken: nothing was written by this turn
        return Unavailable(f"nothing was changed: {error.message}")
    return OutcomeUnknown(f"the journal did not confirm: {error.message}")


def not_serving(name: str, error: OmniRelayError) -> OmniRelayError:
    if isinstance(error, DiskFull | Closed | Corrupt | InvalidOption | JournalOwned):
        return error
    return Recovering(
        f"shard {name} is recovering: {error.message}; nothing was changed, try again"
    )
