"""Producers, workers and operators of a simulated queue, with the habits their plan gives them."""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime

from omnirelay.lease.answers import DrainPage, LeaseResponse
from omnirelay.lease.commands import (
    Command,
    Complete,
    Drain,
    Enqueue,
    Fail,
    Heartbeat,
    Inspect,
    ListDead,
    Purge,
    Redrive,
    Release,
    Restore,
)
from omnirelay.mesh.calls import LeaseCall, Leases, Outcome, Reply
from omnirelay.model.items import Payload, PendingItem, Token
from omnirelay.testing.callers import Caller, calling, is_ok, not_noted
from omnirelay.testing.checker import Kind, Op
from omnirelay.testing.nodes import Site

TYPES = ("alpha", "beta")
_TRIES = 8


class Producer(Caller):
    async def run(self) -> None:
        made = 0
        while made < self.plan.items:
            size = self.chance.randint(1, 4) if self.has("batch_enqueue") else 1
            size = min(size, self.plan.items - made)
            await self._insist([self._draw(made + n) for n in range(size)])
            made += size
            await asyncio.sleep(self.chance.uniform(0, 0.25))

    async def _insist(self, commands: list[Enqueue]) -> None:
        """Ask until every item has its answer. One without a request id must not be repeated
        while its outcome is unknown."""
        for _ in range(_TRIES):
            outcomes = await self.ask(calling(*commands), self.note_enqueues(commands))
            if outcomes != ():
                found = outcomes or (None,) * len(commands)
                commands = [
                    command
                    for command, outcome in zip(commands, found, strict=True)
                    if _is_open(command, outcome)
                ]
            if not commands:
                return
            if self.has("read"):
                await self.look()  # just now is when a reader is most easily told too much
            await asyncio.sleep(self.chance.uniform(0.01, 0.3))

    def _draw(self, number: int) -> Enqueue:
        chance = self.chance
        is_named = not (self.has("no_request_id") and chance.random() < 0.3)
        key = f"p{chance.randrange(3)}" if self.has("partition_key") else None
        return Enqueue(
            principal=self.name,
            payload=Payload(
                resource_type=chance.choice(TYPES),
                resource_id=f"r{chance.randrange(self.plan.resources)}",
                partition_key=key if chance.random() < 0.7 else None,
                body=b"x" * chance.randint(1, 8),
                request_id=f"{self.name}/{number}" if is_named else None,
            ),
            delay_ms=chance.choice((0, 30, 700)) if self.has("delay") else 0,
            priority=chance.choice((-1, 0, 0, 3)) if self.has("priority") else 0,
            max_attempts=chance.choice((None, 1, 4)) if self.has("own_limits") else None,
            lease_duration_ms=chance.choice((None, 150, 900)) if self.has("own_limits") else None,
        )


def _is_open(command: Enqueue, outcome: Outcome | None) -> bool:
    ok = is_ok(outcome)
    return ok is False or (ok is None and command.payload.request_id is not None)


class Worker(Caller):
    """Leases, works, beats and ends leases: well, badly, late or not at all."""

    _asked = 0

    async def run(self) -> None:
        while True:
            leases = await self._lease()
            if leases:
                await self._work(leases)
            else:
                await asyncio.sleep(self.chance.uniform(0.05, 0.3))

    async def _lease(self) -> Sequence[LeaseResponse]:
        chance = self.chance
        self._asked += 1
        request_id = f"{self.name}/{self._asked}" if self.has("lease_request_id") else None
        wait_ms = chance.choice((0, 300, 900))
        most = chance.randint(2, 4) if self.has("batch_lease") and chance.random() < 0.5 else 1
        types = (chance.choice(TYPES),) if self.has("by_type") and chance.random() < 0.5 else None
        lease_ms = chance.choice((None, None, 250)) if self.has("own_limits") else None

        def make(reply: Reply) -> LeaseCall:
            return LeaseCall(
                reply,
                max_items=most,
                wait_ms=wait_ms,
                resource_types=types,
                lease_duration_ms=lease_ms,
                request_id=request_id,
                peer_id=self.name,
                principal=self.name,
            )

        # One who gives up early leaves a call behind that may still be granted.
        is_hasty = self.has("withdraw") and chance.random() < 0.3
        timeout_s = chance.uniform(0.01, 0.3) if is_hasty else None
        for _ in range(_TRIES):
            note = self.note_leases(request_id)
            outcomes = await self.ask(make, note, timeout_s=timeout_s)
            outcome = outcomes[0] if outcomes else None
            if isinstance(outcome, Leases):
                return outcome.leases
            if request_id is None or is_ok(outcome) is False:
                return ()
            await asyncio.sleep(chance.uniform(0, 0.1))
        return ()

    async def _work(self, leases: Sequence[LeaseResponse]) -> None:
        tokens = [lease.token for lease in leases]
        for number, lease in enumerate(leases):
            await self._pause(0.08 if self.is_calm else 0.3)
            if self.has("heartbeat"):
                await self._beat(tokens[number:])
            await self._end(lease)

    async def _beat(self, tokens: list[Token]) -> None:
        beat = Heartbeat(tokens=tuple(tokens), principal=self.name)
        await self.ask(calling(beat), self.note_beats(tokens))
        await self._pause(0.1)

    async def _pause(self, most_s: float) -> None:
        if self.chance.random() < 0.5:
            await asyncio.sleep(self.chance.uniform(0, most_s))

    async def _end(self, lease: LeaseResponse) -> None:
        token = self._old_style(lease.token)
        deed = self._draw_deed()
        if deed == "abandon":
            return
        if deed == "stall":
            await asyncio.sleep(lease.lease_duration_ms / 1000 * self.chance.uniform(0.9, 2.5))
            if self.chance.random() < 0.3:
                await self._beat([token])
            deed = self.chance.choice(("complete", "complete", "fail", "release"))
        if deed == "imposter":
            await self._say("complete", token, as_whom="imposter")
            deed = "complete"
        await self._say(deed, token)
        if deed == "complete" and self.chance.random() < 0.1:
            await self._say("complete", token)

    def _draw_deed(self) -> str:
        bad = ("stall", "abandon", "fail", "dead_letter", "release", "imposter")
        deeds = [deed for deed in bad if self.has(deed)]
        if not deeds or self.chance.random() < 0.55:
            return "complete"
        return self.chance.choice(deeds)

    def _old_style(self, token: Token) -> Token:
        if self.chance.random() < 0.85:
            return token
        return Token(token.sequence_id, token.attempt, token.lease_id)

    async def _say(self, deed: str, token: Token, *, as_whom: str | None = None) -> None:
        who = as_whom or self.name
        kind: Kind
        command: Command
        if deed == "complete":
            kind, command = "complete", Complete(token=token, principal=who)
        elif deed == "release":
            kind, command = "release", Release(token=token, principal=who)
        else:
            delay = self.chance.choice((None, 0, 100))
            kind = "fail"
            command = Fail(
                token=token, principal=who, requeue=deed == "fail", delay_ms=delay, reason="no"
            )
        caller: Caller = self
        if as_whom is not None:
            caller = Caller(as_whom, self.site, self.history)
            caller.is_calm = True  # a copy that came after the holder's own would only be a repeat
        for _ in range(_TRIES):
            outcomes = await caller.ask(calling(command), caller.note_token(kind, token))
            if outcomes and is_ok(outcomes[0]) is not None:
                return
            await asyncio.sleep(self.chance.uniform(0, 0.2))


class Operator(Caller):
    """Drains into files, restores from them (also twice), empties the dead letters, looks on."""

    def __init__(self, name: str, site: Site, history: list[Op]) -> None:
        super().__init__(name, site, history)
        self.files: list[tuple[PendingItem, ...]] = []

    async def run(self) -> None:
        deeds = [
            (name, deed)
            for name, deed in (
                ("drain", self._drain),
                ("restore", self._restore),
                ("immigrate", self._immigrate),
                ("redrive", self._redrive),
                ("purge", self._purge),
                ("read", self._read),
                ("read", self._read),
            )
            if self.has(name)
        ]
        while deeds and not self.is_calm:
            await asyncio.sleep(self.chance.uniform(0.05, 0.5))
            await self.chance.choice(deeds)[1]()

    async def _order(self, command: Command) -> Outcome | None:
        outcomes = await self.ask(calling(command), not_noted)
        return outcomes[0] if outcomes else None

    async def _drain(self) -> None:
        rest = self.has("drain_all") and self.chance.random() < 0.5
        page = await self._order(
            Drain(max_items=self.chance.randint(1, 5), include_active=rest, include_dead=rest)
        )
        if isinstance(page, DrainPage) and page.items:
            self.files.append(page.items)

    async def _restore(self) -> None:
        if self.files:
            await self._order(Restore(items=self.chance.choice(self.files)))

    async def _immigrate(self) -> None:
        """Items that were born in another journal, one of which was leased there before."""
        first = 1000 + 10 * len(self.files)
        token = Token(first, 1, "0" * 8 + "-0000-0000-0000-" + "0" * 12, first * 5)
        born = datetime(2023, 1, 1, tzinfo=UTC)
        items = tuple(
            PendingItem(
                Payload(self.chance.choice(TYPES), f"r{number}"),
                2,
                born,
                first + number,
                last_ownership_token=token if number == 0 else None,
                origin="elsewhere",
            )
            for number in range(2)
        )
        self.files.append(items)
        await self._order(Restore(items=items))

    async def _redrive(self) -> None:
        await self._order(Redrive(max_items=self.chance.randint(1, 4)))

    async def _purge(self) -> None:
        await self._order(Purge(max_items=1))

    async def _read(self) -> None:
        await self._order(self.chance.choice((Inspect(sequence_id=1), ListDead(max_items=3))))
        await self.look()
