"""How simulated clients reach a node, what may happen to their messages, and what they note."""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial

from omnirelay.lease.answers import Accepted, Beat, Beats, LeaseResponse, Stats
from omnirelay.lease.commands import Command, Enqueue, ReadStats
from omnirelay.mesh.calls import Call, LeaseCall, Leases, Outcome, Reply
from omnirelay.model.errors import OmniRelayError, OutcomeUnknown
from omnirelay.model.items import Token
from omnirelay.testing.checker import Kind, Op
from omnirelay.testing.nodes import Answers, SimNode, Site

Make = Callable[[Reply], Call | LeaseCall]
Note = Callable[[Sequence[Outcome] | None, float, float], None]
"""Outcomes (None: unknown), when it was called, when it returned."""

_LOSS = 0.06
_DOUBLING = 0.1
_DELAY_S = 0.08
_TIMEOUT_S = 1.5


class Caller:
    """One client with one connection and one diary."""

    def __init__(self, name: str, site: Site, history: list[Op]) -> None:
        self.name = name
        self.site = site
        self.plan = site.plan
        self.chance = site.chance
        self.history = history
        self.is_calm = False
        self._loop = site.loop

    def has(self, habit: str) -> bool:
        return habit in self.plan.habits and not self.is_calm

    def suffers(self, fault: str, share: float) -> bool:
        if self.is_calm or fault not in self.plan.faults or self.chance.random() >= share:
            return False
        self.site.counts[fault] += 1
        return True

    async def ask(
        self, make: Make, note: Note, *, timeout_s: float | None = None
    ) -> Sequence[Outcome] | None:
        """Outcomes as the client hears them; none at all if nobody serves; None if the answer was
        lost and the outcome with it."""
        called = self._loop.time()
        if self.suffers("slow_message", 0.5):
            await asyncio.sleep(self.chance.uniform(0, _DELAY_S))
        node = self.site.pick()
        if node is None:
            return ()
        answers: Answers = self._loop.create_future()
        call = make(partial(self._arrive, node, answers))
        if not self.suffers("lost_message", _LOSS) and not node.offer(call, answers):
            return ()
        if self.suffers("double_message", _DOUBLING):
            later = self.chance.uniform(0, 0.5)
            self._loop.call_later(later, self._ask_again, make, note)
        # Where no message is lost every call is answered, or the deadlock will say who was not.
        if timeout_s is None and "lost_message" in self.plan.faults:
            timeout_s = _TIMEOUT_S
        if timeout_s is not None:
            timer = self._loop.call_later(timeout_s, _resolve, answers, None)
            outcomes = await answers
            timer.cancel()
        else:
            outcomes = await answers
        node.unanswered.pop(answers, None)
        if outcomes is None and isinstance(call, LeaseCall) and "withdraw" in self.plan.habits:
            call.withdrawn = True
        note(outcomes, called, self._loop.time())
        return outcomes

    def _arrive(self, node: SimNode, answers: Answers, outcomes: Sequence[Outcome]) -> None:
        if not node.is_alive or self.suffers("lost_message", _LOSS):
            return
        if self.suffers("slow_message", 0.5):
            delay = self.chance.uniform(0, _DELAY_S)
            self._loop.call_later(delay, _resolve, answers, outcomes)
        else:
            _resolve(answers, outcomes)

    def _ask_again(self, make: Make, note: Note) -> None:
        """The network delivers the request a second time; both answers must agree."""
        node = self.site.pick()
        if node is None:
            return
        called = self._loop.time()
        note(None, called, called)  # its answer may be lost, and the deed remain

        def reply(outcomes: Sequence[Outcome]) -> None:
            if node.is_alive:
                note(outcomes, called, self._loop.time())

        node.offer(make(reply), self._loop.create_future())

    async def look(self) -> None:
        """Read the queue's depth and keep the answer for the judge."""
        outcomes = await self.ask(calling(ReadStats()), not_noted)
        stats = outcomes[0] if outcomes else None
        if isinstance(stats, Stats):
            self.site.reads.append(
                (stats.last_sequence, stats.pending_count, stats.active_lease_count)
            )

    # -- what is noted --------------------------------------------------------------------------

    def note_enqueues(self, commands: Sequence[Enqueue]) -> Note:
        def note(outcomes: Sequence[Outcome] | None, called: float, returned: float) -> None:
            for command, outcome in zip(commands, outcomes or (None,) * len(commands), strict=True):
                ok = is_ok(outcome)
                accepted = outcome if isinstance(outcome, Accepted) else None
                self.history.append(
                    Op(
                        kind="enqueue",
                        worker=self.name,
                        called=called,
                        returned=None if ok is None else returned,
                        ok=ok,
                        sequence_id=None if accepted is None else accepted.sequence_id,
                        duplicate=accepted is not None and accepted.duplicate,
                        request_id=command.payload.request_id,
                    )
                )

        return note

    def note_leases(self, request_id: str | None) -> Note:
        def note(outcomes: Sequence[Outcome] | None, called: float, returned: float) -> None:
            outcome = outcomes[0] if outcomes else None
            ok = is_ok(outcome)
            if not isinstance(outcome, Leases):
                until = None if ok is None else returned
                self.history.append(
                    Op(
                        kind="lease",
                        worker=self.name,
                        called=called,
                        returned=until,
                        ok=ok,
                        request_id=request_id,
                    )
                )
                return
            for lease in outcome.leases:
                self._note_lease(lease, called, returned, request_id)

        return note

    def _note_lease(
        self, lease: LeaseResponse, called: float, returned: float, request_id: str | None
    ) -> None:
        self.history.append(
            Op(
                kind="lease",
                worker=self.name,
                called=called,
                returned=returned,
                ok=True,
                sequence_id=lease.sequence_id,
                attempt=lease.attempt,
                lease_id=lease.token.lease_id,
                fence=lease.fence,
                request_id=request_id,
                expires=lease.lease_duration_ms / 1000,
            )
        )

    def note_token(self, kind: Kind, token: Token) -> Note:
        def note(outcomes: Sequence[Outcome] | None, called: float, returned: float) -> None:
            ok = is_ok(outcomes[0] if outcomes else None)
            self._note(kind, token, (called, None if ok is None else returned), ok=ok)

        return note

    def note_beats(self, tokens: Sequence[Token]) -> Note:
        def note(outcomes: Sequence[Outcome] | None, called: float, returned: float) -> None:
            beats = outcomes[0] if outcomes else None
            found: Sequence[Beat | OmniRelayError | None] = (
                beats.outcomes if isinstance(beats, Beats) else (None,) * len(tokens)
            )
            for token, beat in zip(tokens, found, strict=True):
                if isinstance(beat, Beat):
                    left = beat.remaining_ms / 1000
                    self._note("heartbeat", token, (called, returned), ok=True, expires=left)

        return note

    def _note(
        self,
        kind: Kind,
        token: Token,
        times: tuple[float, float | None],
        *,
        ok: bool | None,
        expires: float | None = None,
    ) -> None:
        self.history.append(
            Op(
                kind=kind,
                worker=self.name,
                called=times[0],
                returned=times[1],
                ok=ok,
                sequence_id=token.sequence_id,
                attempt=token.attempt,
                lease_id=token.lease_id,
                fence=token.fence,
                expires=expires,
            )
        )


def not_noted(outcomes: Sequence[Outcome] | None, called: float, returned: float) -> None:
    """The journal tells what was done; nobody relies on this caller's diary."""


def is_ok(outcome: Outcome | None) -> bool | None:
    if outcome is None or isinstance(outcome, OutcomeUnknown):
        return None
    return not isinstance(outcome, OmniRelayError)


def calling(*commands: Command) -> Make:
    return lambda reply: Call(commands, reply)


def _resolve(answers: Answers, outcomes: Sequence[Outcome] | None) -> None:
    if not answers.done():
        answers.set_result(outcomes)
