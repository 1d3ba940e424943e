"""Commands to a node: each in the words of its verb, and safe to repeat when an answer is lost."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from itertools import count
from typing import Any, TypeVar

import msgspec

from omnirelay.lease.answers import Accepted, Done, Returned
from omnirelay.lease.commands import Command, Complete, Enqueue, Fail, Heartbeat, Release
from omnirelay.mesh import wire
from omnirelay.mesh.calls import Outcome
from omnirelay.model.errors import (
    InvalidArgument,
    OmniRelayError,
    ResourceExhausted,
    StaleToken,
    TooLarge,
    Unavailable,
)
from omnirelay.model.items import Payload, check_payload, wire_size
from omnirelay.sdk import words
from omnirelay.sdk.asking import Asking, Patience
from omnirelay.sdk.batching import Batcher

C = TypeVar("C", wire.EnqueueRequest, Complete)
Send = Callable[[Sequence[C]], Awaitable[list[Outcome]]]
Sending = Coroutine[Any, Any, Sequence[Outcome]]


class Sender:
    """Belongs to one loop. `name` is no other sender's: it begins the request ids made here."""

    def __init__(self, asking: Asking, name: str) -> None:
        loop = asyncio.get_running_loop()
        self._asking = asking
        self._prefix = f"{name}."
        # Each kind has numbers of its own: a queue keeps ids that follow one another as one run.
        self._items, self._leases = count(1), count(1)
        is_prompt = asking.is_prompt
        self._enqueues = Batcher[wire.EnqueueRequest](
            loop, self._send_enqueues, _size, is_prompt=is_prompt
        )
        self._completes = Batcher[Complete](loop, self._send_completes, is_prompt=is_prompt)

    @property
    def tasks(self) -> set["asyncio.Future[None]"]:
        return self._enqueues.tasks | self._completes.tasks

    def lease_id(self) -> str:
        """A request id for a lease call."""
        return f"{self._prefix}lease.{next(self._leases)}"

    def call(self, commands: Sequence[Command]) -> Awaitable[Sequence[Outcome]]:
        kinds = {type(command) for command in commands}
        if kinds == _ENQUEUES:
            return self._enqueues.call([self._named(one) for one in commands])  # type: ignore[arg-type]
        if kinds == _COMPLETES:
            return self._completes.call(commands)  # type: ignore[arg-type]
        return self._apart(commands)

    async def _apart(self, commands: Sequence[Command]) -> Sequence[Outcome]:
        if len(commands) == 1:
            return (await self._one(commands[0]),)
        return await asyncio.gather(*map(self.outcome, commands))

    async def outcome(self, command: Command) -> Outcome:
        """Of one command by itself; a refusal too."""
        try:
            return (await self.call((command,)))[0]
        except OmniRelayError as error:
            return error

    def _named(self, command: Enqueue) -> wire.EnqueueRequest:
        """With a request id of our own if the caller gave none, so that it can be repeated."""
        payload = command.payload
        if payload.request_id is None:
            payload = Payload(
                payload.resource_type,
                payload.resource_id,
                payload.partition_key,
                payload.payload_encoding,
                payload.body,
                payload.attributes,
                f"{self._prefix}{next(self._items)}",
            )
        return wire.EnqueueRequest(
            payload,
            command.delay_ms,
            command.priority,
            command.max_attempts,
            command.lease_duration_ms,
        )

    # -- one by one ---------------------------------------------------------------------------

    async def _one(self, command: Command) -> Outcome:
        if isinstance(command, Heartbeat):
            request = wire.TokenBatchRequest(command.tokens)
            response = await self._asking.ask("heartbeatBatch", request, wire.TokenBatchResponse)
            assert response is not None
            return words.beats(response, command.tokens)
        spoken = words.SPOKEN[type(command)]
        patience = Patience(self._asking)
        try:
            answered = await self._asking.ask(
                spoken.verb,
                spoken.request(command),
                spoken.response,
                patience=patience,
                repeats=spoken.repeats,
            )
        except StaleToken:
            if patience.was_unknown and isinstance(command, Fail | Release):
                return await self._reported_before(command)
            raise
        return spoken.answer(answered)

    async def _reported_before(self, command: Fail | Release) -> Outcome:
        """The report got no answer, and its repeat says that the lease is over. Whether the report
        itself ended it stands in the item's history. Raises StaleToken if it does not."""
        token = command.token
        kind = "Failed" if isinstance(command, Fail) else "Released"
        request = wire.InspectRequest(token.sequence_id)
        item = await self._asking.ask("inspect", request, wire.InspectResponse)
        assert item is not None
        for event in item.history:
            held = event.ownership
            if event.event_type == kind and held is not None and held.lease_id == token.lease_id:
                if isinstance(command, Release):
                    return Done()
                return Returned(event.disposition or "", event.attempt or token.attempt)
        raise StaleToken(token.sequence_id, "it was over before its end was reported", item.fence)

    # -- many at a time -----------------------------------------------------------------------

    def _send_enqueues(self, items: Sequence[wire.EnqueueRequest]) -> Sending:
        return self._send(items, self._ask_enqueues)

    async def _ask_enqueues(self, items: Sequence[wire.EnqueueRequest]) -> list[Outcome]:
        if len(items) == 1:
            return [await self._ask_enqueue(items[0])]
        request = wire.EnqueueBatchRequest(tuple(items))
        many = await self._asking.ask("enqueueBatch", request, wire.EnqueueBatchResponse)
        assert many is not None
        return [
            self._as_first(item, outcome)
            if isinstance(outcome, Accepted) and outcome.duplicate
            else outcome
            for item, outcome in zip(items, words.enqueue_outcomes(many), strict=True)
        ]

    async def _ask_enqueue(self, item: wire.EnqueueRequest) -> Outcome:
        try:
            accepted = await self._asking.ask("enqueue", item, wire.EnqueueResponse)
        except TooLarge:
            assert item.payload is not None
            check_payload(item.payload)  # what is wrong is rather the item than the message
            raise
        assert accepted is not None
        outcome = words.accepted(accepted)
        return self._as_first(item, outcome) if outcome.duplicate else outcome

    def _as_first(self, item: wire.EnqueueRequest, outcome: Accepted) -> Outcome:
        """An item under a request id of ours can only be a duplicate of itself."""
        assert item.payload is not None
        if not (item.payload.request_id or "").startswith(self._prefix):
            return outcome
        return msgspec.structs.replace(outcome, duplicate=False)

    def _send_completes(self, commands: Sequence[Complete]) -> Sending:
        return self._send(commands, self._ask_completes)

    def _send(self, commands: Sequence[C], ask: Send[C]) -> Sending:
        # A call by itself is asked again by `ask`, where its answer was lost.
        return (self._each_or_all if len(commands) == 1 else self._all)(commands, ask)

    async def _ask_completes(self, commands: Sequence[Complete]) -> list[Outcome]:
        if len(commands) == 1:
            token = wire.TokenRequest(commands[0].token)
            await self._asking.ask("complete", token, wire.TokenResponse)
            return [Done()]
        request = wire.TokenBatchRequest(tuple([command.token for command in commands]))
        response = await self._asking.ask("completeBatch", request, wire.TokenBatchResponse)
        assert response is not None
        return words.token_outcomes(response.results, request.ownership_tokens)

    async def _all(self, commands: Sequence[C], ask: Send[C]) -> list[Outcome]:
        """What the node could not take at the moment is asked again, by itself."""
        outcomes = await self._each_or_all(commands, ask)
        patience = None
        while left := [i for i, one in enumerate(outcomes) if isinstance(one, Unavailable)]:
            patience = patience or Patience(self._asking)
            failure = outcomes[left[0]]
            assert isinstance(failure, Unavailable)
            try:
                await patience.wait(failure)
                again = await self._each_or_all([commands[i] for i in left], ask)
            except OmniRelayError as last:
                return [last if isinstance(one, Unavailable) else one for one in outcomes]
            for index, outcome in zip(left, again, strict=True):
                outcomes[index] = outcome
        return outcomes

    async def _each_or_all(self, commands: Sequence[C], ask: Send[C]) -> list[Outcome]:
        """Callers who know nothing of one another travel together: what is wrong with the words of
        one must not be the refusal of all."""
        try:
            return await ask(commands)
        except (InvalidArgument, TooLarge) as error:
            if len(commands) == 1:
                return [error]
        except OmniRelayError as error:
            if len(commands) == 1 and _is_about_the_command(error):
                return [error]
            raise
        half = len(commands) // 2
        first = await self._each_or_all(commands[:half], ask)
        return first + await self._each_or_all(commands[half:], ask)


def _is_about_the_command(error: OmniRelayError) -> bool:
    return isinstance(error, ResourceExhausted) or error.status in (
        "FAILED_PRECONDITION",
        "NOT_FOUND",
        "PERMISSION_DENIED",
    )


def _size(item: wire.EnqueueRequest) -> int:
    assert item.payload is not None
    return wire_size(item.payload)


_ENQUEUES, _COMPLETES = {Enqueue}, {Complete}
