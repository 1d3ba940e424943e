"""Between what the core answers and what travels. Times become RFC 3339, refusals become rows."""

from collections.abc import Sequence

from omnirelay.journal.events import Event
from omnirelay.lease.answers import DONE, Accepted, Beat, Beats, ItemView, Stats
from omnirelay.mesh.calls import Outcome
from omnirelay.mesh.wire import (
    Depths,
    EnqueueResult,
    ErrorView,
    InspectResponse,
    StatsResponse,
    TokenResult,
)
from omnirelay.model.errors import OmniRelayError, StaleToken
from omnirelay.model.items import to_time


def error_view(error: OmniRelayError) -> ErrorView:
    figures = {name: value for name, value in error.details.items() if isinstance(value, int)}
    return ErrorView(error.message, error.status, error.code, _fence(error), figures or None)


def enqueue_result(outcome: Outcome) -> EnqueueResult:
    if isinstance(outcome, OmniRelayError):
        return EnqueueResult(error=error_view(outcome))
    assert isinstance(outcome, Accepted)
    return EnqueueResult(outcome.sequence_id, outcome.duplicate)


def enqueue_results(outcomes: Sequence[Outcome]) -> tuple[EnqueueResult, ...]:
    return tuple(
        [
            EnqueueResult(outcome.sequence_id, outcome.duplicate)
            if type(outcome) is Accepted
            else enqueue_result(outcome)
            for outcome in outcomes
        ]
    )


def depths_after(outcomes: Sequence[Outcome]) -> Depths | None:
    """As the last accepted item left the queue; None if none was."""
    for outcome in reversed(outcomes):
        if isinstance(outcome, Accepted):
            return Depths(outcome.pending_count, outcome.active_lease_count)
    return None


def token_result(outcome: Outcome) -> TokenResult:
    if outcome is DONE:
        return _TAKEN
    if isinstance(outcome, Beats):
        outcome = outcome.outcomes[0]
    if isinstance(outcome, OmniRelayError):
        return TokenResult(
            False,
            error_code=outcome.code,
            error_message=outcome.message,
            error_status=outcome.status,
            current_fence=_fence(outcome),
        )
    if isinstance(outcome, Beat):
        return TokenResult(True, to_time(outcome.expires_at), outcome.remaining_ms)
    return _TAKEN


_TAKEN = TokenResult(True)


def token_results(outcomes: Sequence[Outcome]) -> tuple[TokenResult, ...]:
    return tuple([_TAKEN if outcome is DONE else token_result(outcome) for outcome in outcomes])


def stats_response(stats: Stats) -> StatsResponse:
    return StatsResponse(
        Depths(stats.pending_count, stats.active_lease_count),
        stats.leader,
        stats.epoch,
        stats.last_sequence,
        stats.backpressure,
        stats.dead_letter_count,
        stats.delayed_count,
        stats.oldest_pending_age_ms,
    )


def inspect_response(view: ItemView, history: tuple[Event, ...]) -> InspectResponse:
    return InspectResponse(
        view.state,
        view.item,
        view.token,
        view.owner_peer_id,
        view.principal,
        None if view.granted_at is None else to_time(view.granted_at),
        None if view.expires_at is None else to_time(view.expires_at),
        None if view.token is None else view.token.fence,
        history,
    )


def _fence(error: OmniRelayError) -> int | None:
    return error.current_fence if isinstance(error, StaleToken) else None
