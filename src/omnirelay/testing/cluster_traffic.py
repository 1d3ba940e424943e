"""Producers and workers of a mesh, through the SDK, and a diary of what each of them was told."""

import asyncio
import random
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

import omnirelay
from omnirelay import Lease, NothingToLease, OmniRelayError, Relay, StaleToken, Unavailable
from omnirelay.testing.checker import Kind, Op

LEASE_S = 8.0
SHORT_S = 0.4
"""What a worker that stalls asks for: it is over before it comes back."""
_PAUSE_S = 0.01
_WAIT_S = 0.5
_STALLS = 0.02


class Traffic:
    def __init__(self, urls: Sequence[str], *, seed: int = 1) -> None:
        self.history: list[Op] = []
        self.accepted: dict[str, int] = {}
        self.failed: list[OmniRelayError] = []
        """Calls that failed although their callers were patient."""
        self.stale = 0
        self._urls = list(urls)
        self._chance = random.Random(seed)
        self._grants = self._due = 0
        self._is_due = asyncio.Event()
        self._enough = asyncio.Event()
        self._is_done = asyncio.Event()

    def connect(self) -> "omnirelay.sdk.connect.Connecting":
        """Each caller has an order of its own."""
        urls = self._chance.sample(self._urls, len(self._urls))
        return omnirelay.connect(",".join(urls), retry=60.0)

    @asynccontextmanager
    async def running(self, producers: int = 2, workers: int = 4) -> AsyncGenerator[None]:
        """Leaving the block ends the producers, and then waits until everything is done."""
        async with AsyncExitStack() as stack, asyncio.TaskGroup() as tasks:
            making = [
                tasks.create_task(self._produce(await stack.enter_async_context(relay), f"p{n}"))
                for n in range(producers)
                for relay in [self.connect()]
            ]
            for number in range(workers):
                relay = await stack.enter_async_context(self.connect())
                tasks.create_task(self._work(relay, f"w{number}"))
            try:
                yield
            finally:
                self._enough.set()
            await asyncio.wait(making)
            await self._emptied(await stack.enter_async_context(self.connect()))
            self._is_done.set()

    async def _emptied(self, relay: Relay) -> None:
        while True:
            stats = await relay.stats()
            if not stats.pending_count and not stats.active_lease_count:
                return
            await asyncio.sleep(_PAUSE_S)

    def _note(
        self, kind: Kind, worker: str, called: float, ok: bool | None, **more: object
    ) -> None:
        returned = None if ok is None else time.monotonic()
        op = Op(kind=kind, worker=worker, called=called, returned=returned, ok=ok, **more)  # type: ignore[arg-type]
        self.history.append(op)

    async def _produce(self, relay: Relay, name: str) -> None:
        number = 0
        while not self._enough.is_set():
            item = f"{name}-{number}"
            number += 1
            called = time.monotonic()
            try:
                accepted = await relay.enqueue("table", item, request_id=item)
            except OmniRelayError as error:
                self.failed.append(error)
                self._note("enqueue", name, called, None, request_id=item)
                continue
            self.accepted[item] = accepted.sequence_id
            self._note(
                "enqueue",
                name,
                called,
                ok=True,
                request_id=item,
                sequence_id=accepted.sequence_id,
                duplicate=accepted.duplicate,
            )
            await asyncio.sleep(_PAUSE_S)

    async def _work(self, relay: Relay, name: str) -> None:
        while not self._is_done.is_set():
            stalls = self._chance.random() < _STALLS and not self._enough.is_set()
            duration = SHORT_S if stalls else LEASE_S
            called = time.monotonic()
            try:
                leasing = relay.lease(
                    wait=_WAIT_S, duration=duration, renew=not stalls, peer_id=name
                )
                lease = await leasing.take()
            except NothingToLease:
                continue
            except OmniRelayError as error:
                self.failed.append(error)
                self._note("lease", name, called, None)
                continue
            self._count_grant()
            token = _token(lease)
            self._note("lease", name, called, ok=True, expires=duration, **token)
            # Between other things: the next turn of a worker that is not idle.
            await asyncio.sleep(2 * SHORT_S if stalls else _PAUSE_S / 2)
            await self._complete(lease, name, token)

    def _count_grant(self) -> None:
        self._grants += 1
        if self._grants >= self._due:
            self._is_due.set()

    async def _complete(self, lease: Lease, name: str, token: dict[str, object]) -> None:
        called = time.monotonic()
        try:
            await lease.complete()
        except StaleToken:
            self.stale += 1
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


def _token(lease: Lease) -> dict[str, object]:
    return {
        "sequence_id": lease.sequence_id,
        "attempt": lease.attempt,
        "lease_id": lease.token.lease_id,
        "fence": lease.fence,
    }
