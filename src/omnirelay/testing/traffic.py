"""A seeded stream of calls to one shard, by several clients at once, with every answer reported.

The same traffic drives a real process that is killed, a shard on a disk that loses power, and one
on a disk that fails. What a client was told, and when, is all that a judge may hold against it.
"""

import asyncio
from collections.abc import Callable, Sequence
from random import Random

import msgspec

from omnirelay.lease.answers import DrainPage
from omnirelay.lease.commands import (
    Command,
    Complete,
    Drain,
    Enqueue,
    Fail,
    Heartbeat,
    Release,
    Restore,
)
from omnirelay.mesh.calls import AnyCall, Call, LeaseCall, Leases, Outcome
from omnirelay.model.errors import DiskFull, OmniRelayError, Overloaded, Unavailable
from omnirelay.model.items import Payload, PendingItem, Token
from omnirelay.sdk.link import Wish
from omnirelay.testing.claims import Claim, claims_of_answers, claims_of_leases

Sent = Enqueue | Heartbeat | Complete | Fail | Release | Drain | Restore
_PAUSE_S = 0.002
_TRIES = 5_000


class Called(msgspec.Struct, frozen=True, tag="called", omit_defaults=True):
    """A client is about to ask: commands that travel together, or a lease."""

    number: int
    commands: tuple[Sent, ...] = ()
    wish: Wish | None = None


class Answered(msgspec.Struct, frozen=True, tag="answered", omit_defaults=True):
    """The reply has come, with what it claims to have done and the reasons for what it refused."""

    number: int
    claims: tuple[Claim, ...] = ()
    refusals: tuple[str, ...] = ()


Report = Callable[[Called | Answered], None]
Offer = Callable[[AnyCall], None]


class Traffic:
    """What all clients know together. `held` are tokens nobody is using at the moment."""

    def __init__(self, offer: Offer, report: Report, *, seed: int, name: str) -> None:
        self.held: list[Token] = []
        self.drained: list[PendingItem] = []
        self._offer = offer
        self._report = report
        self._seed = seed
        self._name = name
        self._number = 0
        self._requests = 0
        self._accepted: list[Enqueue] = []

    async def run(self, *, clients: int, calls: int) -> None:
        async with asyncio.TaskGroup() as group:
            for client in range(clients):
                chance = Random(f"{self._seed}/{self._name}/{client}")
                group.create_task(self._client(chance, calls))

    async def _client(self, chance: Random, calls: int) -> None:
        for _ in range(calls):
            await self.ask(self._next(chance))

    async def repeat(self, called: Called) -> None:
        """Ask what another process asked before it died, with the same request ids."""
        self._number += 1
        await self.ask(msgspec.structs.replace(called, number=self._number))

    async def finish(self) -> None:
        """Work off everything that is left, so that each item can be seen to end."""
        if self.drained:
            await self.ask(self._called(Restore(items=tuple(self.drained))))
        while True:
            for token in self._take(len(self.held)):
                await self.ask(self._called(Complete(token=token)))
            # Long enough for every delay and every short lease of this traffic to pass.
            await self.ask(self._lease(Random(0), 50, wait_ms=400))
            if not self.held:
                return

    # -- what to ask ------------------------------------------------------------------------------

    def _next(self, chance: Random) -> Called:
        roll = chance.random()
        if roll < 0.34:
            return self._called(*self._enqueues(chance))
        if roll < 0.58 or not self.held:
            return self._lease(chance, chance.choice((1, 1, 2, 4)))
        if roll < 0.66:
            count = min(len(self.held), chance.randint(1, 3))
            return self._called(Heartbeat(tokens=tuple(chance.sample(self.held, count))))
        if roll < 0.70:
            return self._called(Drain(max_items=chance.randint(1, 3)))
        if roll < 0.74 and self.drained:
            items, self.drained = tuple(self.drained), []
            return self._called(Restore(items=items))
        return self._called(*(self._end(token, chance) for token in self._take(2)))

    def _called(self, *commands: Sent) -> Called:
        self._number += 1
        return Called(self._number, commands)

    def _enqueues(self, chance: Random) -> list[Enqueue]:
        if self._accepted and chance.random() < 0.1:
            return [chance.choice(self._accepted)]  # a producer that did not trust its answer
        return [self._enqueue(chance) for _ in range(chance.choice((1, 1, 1, 3)))]

    def _enqueue(self, chance: Random) -> Enqueue:
        payload = Payload(
            "table",
            f"t{chance.randrange(20)}",
            body=chance.randbytes(chance.choice((0, 20, 200, 2000))),
            request_id=self._request("e"),
        )
        delay_ms = chance.choice((0, 0, 0, 0, 30))
        return Enqueue(payload=payload, delay_ms=delay_ms, priority=chance.choice((0, 0, 0, 5)))

    def _lease(self, chance: Random, most: int, *, wait_ms: int = 0) -> Called:
        self._number += 1
        # Some leases are so short that they expire under way.
        duration = chance.choice((None, None, None, 150))
        request_id = self._request("l")
        wish = Wish(
            max_items=most, wait_ms=wait_ms, lease_duration_ms=duration, request_id=request_id
        )
        return Called(self._number, wish=wish)

    def _request(self, kind: str) -> str:
        self._requests += 1
        return f"{kind}-{self._name}-{self._requests}"

    def _take(self, most: int) -> list[Token]:
        taken, self.held = self.held[:most], self.held[most:]
        return taken

    def _end(self, token: Token, chance: Random) -> Sent:
        roll = chance.random()
        if roll < 0.6:
            return Complete(token=token)
        if roll < 0.8:
            return Fail(token=token, reason="planned", requeue=chance.random() < 0.8, delay_ms=0)
        return Release(token=token)

    # -- asking -----------------------------------------------------------------------------------

    async def ask(self, called: Called) -> Sequence[Outcome]:
        """Ask until the shard says yes or no; "not now" and "perhaps" are asked again, with the
        same request id, as a client would."""
        outcomes: Sequence[Outcome] = ()
        for _ in range(_TRIES):
            outcomes = await self._ask_once(called)
            if not any(_may_be_repeated(outcome) for outcome in outcomes):
                self._learn(called, outcomes)
                return outcomes
            await asyncio.sleep(_PAUSE_S)
        raise TimeoutError(f"call {called.number} was put off {_TRIES} times: {outcomes}")

    async def _ask_once(self, called: Called) -> Sequence[Outcome]:
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Sequence[Outcome]] = loop.create_future()

        def reply(outcomes: Sequence[Outcome]) -> None:
            # Reported here, on the shard's own thread: nothing may lie between answer and report.
            self._report(_answered(called, outcomes))
            loop.call_soon_threadsafe(_settle, answer, tuple(outcomes))

        self._report(called)
        self._offer(_call(called, reply))
        return await answer

    def _learn(self, called: Called, outcomes: Sequence[Outcome]) -> None:
        for outcome in outcomes:
            if isinstance(outcome, Leases):
                self.held += [lease.token for lease in outcome.leases]
            elif isinstance(outcome, DrainPage):
                self.drained += outcome.items
        self._accepted += [c for c in called.commands if isinstance(c, Enqueue)]


def _call(called: Called, reply: Callable[[Sequence[Outcome]], None]) -> AnyCall:
    wish = called.wish
    if wish is None:
        return Call(called.commands, reply)
    return LeaseCall(
        reply,
        max_items=wish.max_items,
        wait_ms=wish.wait_ms,
        lease_duration_ms=wish.lease_duration_ms,
        request_id=wish.request_id,
    )


def _answered(called: Called, outcomes: Sequence[Outcome]) -> Answered:
    refusals = tuple(o.code for o in outcomes if isinstance(o, OmniRelayError))
    if called.wish is not None:
        return Answered(called.number, tuple(claims_of_leases(outcomes[0])), refusals)
    commands: Sequence[Command] = called.commands
    return Answered(called.number, tuple(claims_of_answers(commands, outcomes)), refusals)


def _may_be_repeated(outcome: Outcome) -> bool:
    return isinstance(outcome, Unavailable | DiskFull | Overloaded)


def _settle(answer: asyncio.Future[Sequence[Outcome]], outcomes: Sequence[Outcome]) -> None:
    if not answer.done():
        answer.set_result(outcomes)
