"""Between the commands and answers of the core and what travels: the caller's side of
`mesh/translate.py`."""

from collections.abc import Callable, Sequence
from typing import Any

from omnirelay.lease import answers, commands
from omnirelay.lease.answers import Answer, Beat, Beats
from omnirelay.lease.commands import Command
from omnirelay.mesh import wire
from omnirelay.mesh.calls import Outcome
from omnirelay.model.errors import OmniRelayError
from omnirelay.model.items import Token, to_ms
from omnirelay.rpc.status import ErrorBody, error_of


def accepted(response: wire.EnqueueResponse) -> answers.Accepted:
    stats = response.stats
    return answers.Accepted(
        response.sequence_id, response.duplicate, stats.pending_count, stats.active_lease_count
    )


def enqueue_outcomes(response: wire.EnqueueBatchResponse) -> list[Outcome]:
    pending, active = response.stats.pending_count, response.stats.active_lease_count
    return [
        answers.Accepted(result.sequence_id or 0, bool(result.duplicate), pending, active)
        if result.error is None
        else _refusal(result.error)
        for result in response.results
    ]


def _refusal(view: wire.ErrorView) -> OmniRelayError:
    return error_of(ErrorBody(view.message, view.status, view.code, dict(view.details or {})))


def token_outcomes(results: Sequence[wire.TokenResult], tokens: Sequence[Token]) -> list[Outcome]:
    pairs = zip(results, tokens, strict=True)
    return [_token_outcome(result, token) for result, token in pairs]


def _token_outcome(result: wire.TokenResult, token: Token) -> Outcome:
    if result.success:
        if result.expires_at is None:
            return _DONE
        return Beats((Beat(to_ms(result.expires_at), result.remaining_ms or 0),))
    details = {"sequenceId": token.sequence_id}
    if result.current_fence is not None:
        details["currentFence"] = result.current_fence
    view = wire.ErrorView(
        result.error_message or "refused",
        result.error_status or "INTERNAL",
        result.error_code or "error.internal",
        result.current_fence,
        details,
    )
    return _refusal(view)


def beats(response: wire.TokenBatchResponse, tokens: Sequence[Token]) -> Beats:
    """The outcomes of one heartbeat of several tokens."""
    outcomes: list[Beat | OmniRelayError] = []
    for outcome in token_outcomes(response.results, tokens):
        if isinstance(outcome, Beats):
            outcomes.extend(outcome.outcomes)
        else:
            assert isinstance(outcome, OmniRelayError)
            outcomes.append(outcome)
    return Beats(tuple(outcomes))


_DONE = answers.Done()


# -- one command, one call ----------------------------------------------------------------------


class Spoken:
    """How one kind of command travels by itself."""

    def __init__(
        self,
        verb: str,
        request: Callable[[Any], Any],
        response: type[Any],
        answer: Callable[[Any], Answer],
        *,
        repeats: bool = True,
    ) -> None:
        """Unless it `repeats`, a second time would do more than the first."""
        # Any: each takes its own kind of command or response; the key of the table is that kind.
        self.repeats = repeats
        self.verb = verb
        self.request = request
        self.response = response
        self.answer = answer


def _token(command: commands.Release) -> wire.TokenRequest:
    return wire.TokenRequest(command.token)


def _fail(command: commands.Fail) -> wire.FailRequest:
    return wire.FailRequest(
        command.token,
        command.reason,
        command.error_code,
        command.requeue,
        command.metadata,
        command.delay_ms,
    )


def _selection(command: commands.Redrive | commands.Purge) -> wire.DeadSelection:
    return wire.DeadSelection(
        command.max_items, command.sequence_ids, command.resource_type, command.resource_id
    )


def _stats(response: wire.StatsResponse) -> answers.Stats:
    return answers.Stats(
        response.stats.pending_count,
        response.stats.active_lease_count,
        response.delayed_count,
        response.dead_letter_count,
        response.backpressure,
        response.leader,
        response.epoch,
        response.last_sequence,
        response.oldest_pending_age_ms,
    )


def _view(response: wire.InspectResponse) -> answers.ItemView:
    return answers.ItemView(
        response.state,
        response.item,
        response.ownership_token,
        response.owner_peer_id,
        response.principal,
        None if response.granted_at is None else to_ms(response.granted_at),
        None if response.expires_at is None else to_ms(response.expires_at),
    )


SPOKEN: dict[type[Command], Spoken] = {
    commands.Release: Spoken("release", _token, wire.TokenResponse, lambda _: _DONE),
    commands.Fail: Spoken(
        "fail",
        _fail,
        wire.FailResponse,
        lambda response: answers.Returned(response.disposition, response.attempt),
    ),
    commands.Drain: Spoken(
        "drain",
        lambda c: wire.DrainRequest(c.max_items, c.include_active, c.include_dead),
        wire.DrainResponse,
        lambda response: answers.DrainPage(response.items, response.remaining),
        repeats=False,
    ),
    commands.Restore: Spoken(
        "restore",
        lambda c: wire.RestoreRequest(c.items),
        wire.RestoreResponse,
        lambda r: answers.RestoreCount(r.restored_count, r.skipped_count),
    ),
    commands.ReadStats: Spoken("stats", lambda _: wire.StatsRequest(), wire.StatsResponse, _stats),
    commands.Inspect: Spoken(
        "inspect",
        lambda c: wire.InspectRequest(c.sequence_id or None, c.resource_type, c.resource_id),
        wire.InspectResponse,
        _view,
    ),
    commands.ListDead: Spoken(
        "deadLetters",
        lambda c: wire.DeadLettersRequest(c.max_items, c.after, c.resource_type, c.resource_id),
        wire.DeadLettersResponse,
        lambda response: answers.DeadPage(response.items, response.total),
    ),
    commands.Redrive: Spoken(
        "redrive", _selection, wire.CountResponse, lambda r: answers.Count(r.count), repeats=False
    ),
    commands.Purge: Spoken(
        "purge", _selection, wire.CountResponse, lambda r: answers.Count(r.count), repeats=False
    ),
}
