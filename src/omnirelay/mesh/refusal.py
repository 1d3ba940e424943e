"""What a caller is told when its turn failed or no turn is to be had."""

from collections.abc import Sequence

from omnirelay.mesh.calls import AnyCall, Call, Outcome
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


def append_refusal(error: Exception) -> OmniRelayError:
    """What a caller of a turn whose append failed may believe."""
    if not isinstance(error, OmniRelayError):
        return OutcomeUnknown(f"the journal failed: {type(error).__name__}: {error}")
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
