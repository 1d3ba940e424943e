"""Producers and workers of a mesh, through the SDK, and a diary of what each of them was told."""

import asyncio
import random
import time
from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from functools import partial

import omnirelay
from omnirelay import Lease, NothingToLease, OmniRelayError, Relay, StaleToken, Unavailable
from omnirelay.journal.events import Event
from omnirelay.lease.answers import Beat, Beats
from omnirelay.lease.commands import Heartbeat
from omnirelay.testing.checker import Kind, Op

LEASE_S = 8.0
SHORT_S = 0.4
"""What a worker that stalls asks for: it is over before it comes back."""
_PAUSE_S = 0.01
_WAIT_S = 0.5
_STALLS = 0.02
_FIRST_STALL = 5
"""Each worker's fifth lease is one that it stalls with, so that no run is without."""
_BEATS = 0.1
_ASKS_AGAIN = 0.1
_READERS_S = 30.0


class Traffic:
    def __init__(
        self, urls: Sequence[str], *, seed: int = 1, namespace: str = "resourcelease"
    ) -> None:
        self.namespace = namespace
        self.history: list[Op] = []
        self.accepted: dict[str, int] = {}
        self.failed: list[OmniRelayError] = []
        """Calls that failed although their callers were patient."""
        self.stale: Counter[Kind] = Counter()
        """What was refused because its token was no longer the item's."""
        self.repeated: Counter[Kind] = Counter()
        """What was asked for twice under one request id and answered twice."""
        self.seen: dict[str, list[Event]] = {url: [] for url in urls}
        """What each node told whoever follows its journal."""
        self.last_sequence = 0
        """Of the journal, when everything was done."""
        self._urls = list(urls)
        self._chance = random.Random(seed)
        self._grants = self._due = 0
        self._is_due = asyncio.Event()
        self._enough = asyncio.Event()
        self._is_done = asyncio.Event()
        self._is_told = asyncio.Event()

    def connect(self) -> "omnirelay.sdk.connect.Connecting":
        """Each caller has an order of its own."""
        urls = self._chance.sample(self._urls, len(self._urls))
        return omnirelay.connect(",".join(urls), retry=60.0, namespace=self.namespace)

    @asynccontextmanager
    async def running(
        self, producers: int = 2, workers: int = 4, *, pause_s: float = _PAUSE_S
    ) -> AsyncGenerator[None]:
        """Leaving the block ends the producers, and then waits until everything is done. A
        producer rests for `pause_s` between two items."""
        async with AsyncExitStack() as stack, asyncio.TaskGroup() as tasks:
            making = [
                tasks.create_task(
                    self._produce(await stack.enter_async_context(relay), f"p{n}", pause_s)
                )
                for n in range(producers)
                for relay in [self.connect()]
            ]
            for number in range(workers):
                relay = await stack.enter_async_context(self.connect())
                tasks.create_task(self._work(relay, f"w{number}"))
            reading = [
                tasks.create_task(self._read(await stack.enter_async_context(relay), url))
                for url in self._urls
                for relay in [omnirelay.connect(url, retry=60.0, namespace=self.namespace)]
            ]
            try:
                yield
            finally:
                self._enough.set()
            await asyncio.wait(making)
            await self._emptied(await stack.enter_async_context(self.connect()))
            self._is_done.set()
            await self._all_told()
            for reader in reading:
                reader.cancel()

    async def _emptied(self, relay: Relay) -> None:
        while True:
            stats = await relay.stats()
            if not stats.pending_count and not stats.active_lease_count:
                self.last_sequence = stats.last_sequence
                return
            await asyncio.sleep(_PAUSE_S)

    def _note(
        self, kind: Kind, worker: str, called: float, ok: bool | None, **more: object
    ) -> None:
        returned = None if ok is None else time.monotonic()
        op = Op(kind=kind, worker=worker, called=called, returned=returned, ok=ok, **more)  # type: ignore[arg-type]
        self.history.append(op)

    async def _read(self, relay: Relay, url: str) -> None:
        """Through whatever happens to the node."""
        events = relay.events()
        assert isinstance(events, AsyncGenerator)
        async with aclosing(events):
            async for event in events:
                self.seen[url].append(event)
                self._is_told.set()

    async def _all_told(self) -> None:
        """Until every node has told of everything."""
        async with asyncio.timeout(_READERS_S):
            while any(_last(seen) < self.last_sequence for seen in self.seen.values()):
                self._is_told.clear()
                await self._is_told.wait()

    async def _produce(self, relay: Relay, name: str, pause_s: float) -> None:
        number = 0
        while not self._enough.is_set():
            await self._enqueue(relay, name, f"{name}-{number}")
            if self._chance.random() < _ASKS_AGAIN:
                self.repeated["enqueue"] += await self._enqueue(relay, name, f"{name}-{number}")
            number += 1
            await asyncio.sleep(pause_s)

    async def _enqueue(self, relay: Relay, name: str, item: str) -> bool:
        called = time.monotonic()
        try:
            accepted = await relay.enqueue("table", item, request_id=item)
        except OmniRelayError as error:
            self.failed.append(error)
            self._note("enqueue", name, called, None, request_id=item)
            return False
        self.accepted[item] = accepted.sequence_id
        told = {"sequence_id": accepted.sequence_id, "duplicate": accepted.duplicate}
        self._note("enqueue", name, called, ok=True, request_id=item, **told)
        return True

    async def _work(self, relay: Relay, name: str) -> None:
        grants = asked = 0
        while not self._is_done.is_set():
            is_due = grants == _FIRST_STALL or self._chance.random() < _STALLS
            stalls = is_due and not self._enough.is_set()
            asked += 1
            asks = partial(self._lease, relay, name, f"{name}-{asked}", stalls=stalls)
            lease = await asks(renew=not stalls)
            if lease is None:
                continue
            grants += 1
            self._count_grant()
            if self._chance.random() < _ASKS_AGAIN:
                self.repeated["lease"] += await asks(renew=False) is not None
            # Between other things: the next turn of a worker that is not idle.
            await asyncio.sleep(2 * SHORT_S if stalls else _PAUSE_S / 2)
            if stalls or self._chance.random() < _BEATS:
                await self._beat(relay, lease, name)
            await self._complete(lease, name)

    async def _lease(
        self, relay: Relay, name: str, request_id: str, *, stalls: bool, renew: bool
    ) -> Lease | None:
        duration = SHORT_S if stalls else LEASE_S
        called = time.monotonic()
        wish = relay.lease(
            wait=_WAIT_S, duration=duration, renew=renew, peer_id=name, request_id=request_id
        )
        try:
            lease = await wish.take()
        except NothingToLease:
            return None
        except StaleToken:
            # The reply got lost, and when it was asked for again the lease was over.
            self._note("lease", name, called, None, request_id=request_id)
            return None
        except OmniRelayError as error:
            self.failed.append(error)
            self._note("lease", name, called, None, request_id=request_id)
            return None
        told = {"expires": duration, "request_id": request_id, **_token(lease)}
        self._note("lease", name, called, ok=True, **told)
        return lease

    async def _beat(self, relay: Relay, lease: Lease, name: str) -> None:
        called = time.monotonic()
        try:
            beats = await relay.one(Heartbeat(tokens=(lease.token,)))
        except Unavailable as error:
            self.failed.append(error)
            self._note("heartbeat", name, called, None, **_token(lease))
            return
        assert isinstance(beats, Beats)
        [outcome] = beats.outcomes
        if isinstance(outcome, Beat):
            expires = outcome.remaining_ms / 1000
            self._note("heartbeat", name, called, ok=True, expires=expires, **_token(lease))
        else:
            assert isinstance(outcome, StaleToken), outcome
            self.stale["heartbeat"] += 1
            self._note("heartbeat", name, called, ok=False, **_token(lease))

    def _count_grant(self) -> None:
        self._grants += 1
        if self._grants >= self._due:
            self._is_due.set()

    async def _complete(self, lease: Lease, name: str) -> None:
        called = time.monotonic()
        token = _token(lease)
        try:
            await lease.complete()
        except StaleToken:
            self.stale["complete"] += 1
            self._note("complete", name, called, ok=False, **token)
        except Unavailable as error:
            self.failed.append(error)
            self._note("complete", name, called, None, **token)
        else:
            self._note("complete", name, called, ok=True, **token)

    async def goes_on(self, grants: int = 50) -> None:
        """Until workers have had so many more."""
        self._due = self._grants + grants
        self._is_due.clear()
        await self._is_due.wait()

    def _granted(self) -> list[Op]:
        return [op for op in self.history if op.kind == "lease" and op.ok]

    def granted_by(self, fence: int) -> float | None:
        """When a worker had the grant of this fence."""
        return next((op.returned for op in self._granted() if (op.fence or 0) >= fence), None)


def _last(seen: Sequence[Event]) -> int:
    return seen[-1].sequence_number if seen else 0


def _token(lease: Lease) -> dict[str, object]:
    return {
        "sequence_id": lease.sequence_id,
        "attempt": lease.attempt,
        "lease_id": lease.token.lease_id,
        "fence": lease.fence,
    }
