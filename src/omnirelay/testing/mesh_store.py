"""A journal server behind a network, shared by the nodes of a simulated mesh.

What it keeps is a `MemoryJournal`, so that its condition is the one that every store is held to.
Everything between a node and it can fail: requests and answers get lost, come late, come twice; a
cut may be one-way; what others appended is seen late. What was sent arrives or does not, whether or
not its sender is still there.
"""

from collections import Counter
from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple

from omnirelay.journal.backend import Durability, Head, JournalReader, SnapshotRef
from omnirelay.journal.format import Sealed
from omnirelay.mesh.rest import run_now
from omnirelay.model.errors import OmniRelayError, OutcomeUnknown, Unavailable
from omnirelay.stores.memory import MemoryJournal
from omnirelay.testing.mesh_plan import MeshPlan
from omnirelay.testing.pausing import NOBODY, PausingLoop

if TYPE_CHECKING:
    import asyncio

UP, DOWN = "up", "down"
_TIMEOUT_S = 0.04
_LATE_S = 0.25
_MISHAP = 0.05


class Committed(NamedTuple):
    sealed: Sealed
    at_s: float


class SimStore:
    def __init__(self, shard: str, plan: MeshPlan, loop: PausingLoop, chance: Random) -> None:
        self.server = MemoryJournal(shard)
        self.plan = plan
        self.loop = loop
        self.chance = chance
        self.cuts: set[tuple[str, str]] = set()
        """Node and direction; up is towards the store."""
        self.archive: list[Committed] = []
        """Every envelope ever taken, pruned or not: what can be seen, and for the judge."""
        self.bodies: list[bytes] = []
        self.counts: Counter[str] = Counter()
        self.slow_until = 0.0
        self.is_calm = False
        self.waiting: dict[StoreHandle, tuple[int, asyncio.Future[None]]] = {}

    def trip_s(self) -> float:
        trip = self.chance.uniform(*self.plan.latency_s)
        return 8 * trip if self.loop.time() < self.slow_until else trip

    def suffers(self, fault: str, share: float = _MISHAP) -> bool:
        if self.is_calm or fault not in self.plan.faults or self.chance.random() >= share:
            return False
        self.counts[fault] += 1
        return True

    def take(self, sealed: Sealed, expected: int) -> None:
        """Raises what the server's condition raises."""
        run_now(self.server.append(sealed, expected=expected))
        self.archive.append(Committed(sealed, self.loop.time()))
        self.bodies.append(sealed.body)
        for handle, (after, waiting) in list(self.waiting.items()):
            if after < sealed.last and not self.suffers("lost_wake_up", 0.3):
                del self.waiting[handle]
                handle.wake(waiting)

    def take_late(self, sealed: Sealed, expected: int, count: str) -> None:
        try:
            self.take(sealed, expected)
        except OmniRelayError:
            return
        self.counts[count] += 1


class StoreHandle:
    """What one life of a node has of the store: a `JournalBackend`."""

    name = "simulated"
    blocks = False

    def __init__(self, store: SimStore, node: str) -> None:
        self.shard = store.server.shard
        self.is_dead = False
        """Its process is gone: it sends nothing any more."""
        self._store = store
        self._node = node
        self._loop = store.loop
        self._seen = 0
        self._is_quick = store.plan.has_quick_reads

    # -- the way there and back ----------------------------------------------------------------

    async def _ask(self, deed: Callable[[], Any], *, unsure: bool = False) -> Any:
        """Raises Unavailable, or OutcomeUnknown if `unsure`, when no answer comes."""
        store, loop = self._store, self._loop
        answer: asyncio.Future[Any] = loop.create_future()
        if self.is_dead:
            return await answer
        if (self._node, UP) in store.cuts:
            self._give_up(answer, unsure)
        elif self._is_quick and not unsure and (self._node, DOWN) not in store.cuts:
            return deed()
        else:
            loop.call_later(store.trip_s(), self._arrive, deed, answer, unsure, context=NOBODY)
        return await answer

    def _give_up(self, answer: "asyncio.Future[Any]", unsure: bool) -> None:
        kind = OutcomeUnknown if unsure else Unavailable
        error = kind("the simulated store does not answer")
        self._loop.call_later(_TIMEOUT_S, _refuse, answer, error, context=NOBODY)

    def _arrive(self, deed: Callable[[], Any], answer: "asyncio.Future[Any]", unsure: bool) -> None:
        try:
            result, error = deed(), None
        except OmniRelayError as refusal:
            result, error = None, refusal
        if (self._node, DOWN) in self._store.cuts:
            self._give_up(answer, unsure)
        elif not unsure:  # a read: its answer was fetched when it came
            _refuse(answer, error) if error is not None else _resolve(answer, result)
        elif error is not None:
            self._loop.call_later(self._store.trip_s(), _refuse, answer, error, context=NOBODY)
        elif self._store.suffers("append_unconfirmed"):
            self._give_up(answer, unsure)
        else:
            self._loop.call_later(self._store.trip_s(), _resolve, answer, result, context=NOBODY)

    # -- envelopes -----------------------------------------------------------------------------

    async def open(self) -> None:
        await self._ask(lambda: None)

    async def close(self) -> None:
        return None

    async def durability(self) -> Durability:
        return Durability(True, True, True, "simulated")

    async def append(self, sealed: Sealed, *, expected: int) -> None:
        store = self._store

        def take() -> None:
            store.take(sealed, expected)
            self._seen = max(self._seen, sealed.last)

        if not self.is_dead and not store.is_calm:
            is_cut = (self._node, UP) in store.cuts
            if store.suffers("append_lost"):
                return await self._lose(OutcomeUnknown("the simulated append was lost"))
            if store.suffers("append_late", 0.3 if is_cut else _MISHAP):
                self._send_late(sealed, expected, "append_landed_late")
                return await self._lose(OutcomeUnknown("the simulated append is still under way"))
            if store.suffers("append_twice"):
                self._send_late(sealed, expected, "append_landed_twice")
        await self._ask(take, unsure=True)
        return None

    async def _lose(self, error: OmniRelayError) -> None:
        answer: asyncio.Future[None] = self._loop.create_future()
        self._loop.call_later(_TIMEOUT_S, _refuse, answer, error, context=NOBODY)
        await answer

    def _send_late(self, sealed: Sealed, expected: int, count: str) -> None:
        delay = self._store.chance.uniform(0, _LATE_S)
        self._loop.call_later(delay, self._store.take_late, sealed, expected, count, context=NOBODY)

    def _horizon(self) -> int:
        """How far this handle sees. What it has seen once it does not lose sight of."""
        medium, archive = self._store.server.medium, self._store.archive
        lag_s = 0.0 if self._store.is_calm else self._store.plan.lag_s
        visible_s = self._loop.time() - lag_s
        last = next((one.sealed.last for one in reversed(archive) if one.at_s <= visible_s), 0)
        least = medium.pruned_through
        if least and least >= max(self._seen, last):  # it cannot look at what is gone
            last = medium.lasts[-1]
        self._seen = max(self._seen, last)
        return self._seen

    async def head(self) -> Head:
        head: Head = await self._ask(self._head)
        return head

    def _head(self) -> Head:
        horizon = self._horizon()
        for sealed in reversed(self._store.server.medium.envelopes):
            if sealed.last <= horizon:
                return Head(sealed.last, sealed.epoch, sealed.checksum, sealed.time)
        return Head()

    async def first(self) -> int:
        first: int = await self._ask(lambda: run_now(self._store.server.first()))
        return first

    async def read(self, after: int, limit: int) -> list[bytes]:
        bodies: list[bytes] = await self._ask(lambda: self._read(after, limit))
        return bodies

    def _read(self, after: int, limit: int) -> list[bytes]:
        horizon, lasts = self._horizon(), self._store.server.medium.lasts
        visible = sum(after < last <= horizon for last in lasts)
        return run_now(self._store.server.read(after, min(limit, visible))) if visible else []

    async def wait_for_more(self, after: int, timeout_s: float) -> None:
        waiting: asyncio.Future[None] = self._loop.create_future()
        timer = self._loop.call_later(timeout_s, _resolve, waiting, None)
        lasts = self._store.server.medium.lasts
        if lasts and lasts[-1] > after:
            self.wake(waiting)
        else:
            self._store.waiting[self] = (after, waiting)
        try:
            await waiting
        finally:
            timer.cancel()
            self._store.waiting.pop(self, None)

    def wake(self, waiting: "asyncio.Future[None]") -> None:
        """When what is there can be seen."""
        store = self._store
        if not self.is_dead and (self._node, DOWN) not in store.cuts:
            delay = store.plan.lag_s + store.trip_s()
            if every := store.plan.wakes_every_s:
                delay += every - self._loop.time() % every
            self._loop.call_later(delay, _resolve, waiting, None, context=NOBODY)

    def reader(self) -> JournalReader:
        return StoreHandle(self._store, self._node)

    # -- snapshots -----------------------------------------------------------------------------

    async def write_part(self, sequence: int, part: int, body: bytes) -> None:
        await self._ask(lambda: run_now(self._store.server.write_part(sequence, part, body)))

    async def finish_snapshot(self, ref: SnapshotRef) -> None:
        await self._ask(lambda: run_now(self._store.server.finish_snapshot(ref)))
        self._store.counts["snapshots"] += 1

    async def snapshot(self) -> SnapshotRef | None:
        ref: SnapshotRef | None = await self._ask(lambda: run_now(self._store.server.snapshot()))
        if ref is not None:
            self._seen = max(self._seen, ref.sequence)
        return ref

    async def read_part(self, sequence: int, part: int) -> bytes:
        body: bytes = await self._ask(lambda: run_now(self._store.server.read_part(sequence, part)))
        return body

    async def prune(self, through: int, *, before_ms: int, limit: int) -> int:
        server = self._store.server
        gone: int = await self._ask(
            lambda: run_now(server.prune(through, before_ms=before_ms, limit=limit))
        )
        self._store.counts["pruned"] += gone
        return gone


def _resolve(future: "asyncio.Future[Any]", result: Any) -> None:
    if not future.done():
        future.set_result(result)


def _refuse(future: "asyncio.Future[Any]", error: OmniRelayError) -> None:
    if not future.done():
        future.set_exception(error)
