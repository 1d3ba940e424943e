"""One lease component: a namespace and the queue behind it, as every verb sees them.

Each verb is one corridor: stamp the command with who was proved to call, hand it in at the desk,
translate what comes back.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from typing import Protocol, TypeVar

from omnirelay.journal.events import Event
from omnirelay.lease.answers import Answer, LeaseResponse
from omnirelay.lease.commands import Command
from omnirelay.mesh.calls import AnyCall, Call, LeaseCall, Outcome
from omnirelay.mesh.desk import Desk
from omnirelay.mesh.wire import (
    CompleteAndLeaseRequest,
    LeaseBatchRequest,
    LeaseRequest,
    WorkRequest,
)
from omnirelay.model import limits
from omnirelay.model.errors import OmniRelayError
from omnirelay.model.items import ANONYMOUS
from omnirelay.model.ports import Clock
from omnirelay.rpc.meta import RequestMeta

A = TypeVar("A", bound=Answer)


class Queue(Protocol):
    """What a component needs of the shard behind it."""

    def offer(self, call: AnyCall) -> None:
        """Raises Overloaded or Closed; the reply comes on any thread."""

    def events(self, after: int, *, follow: bool) -> AsyncGenerator[Event]: ...

    async def position(self, reader: str, sequence: int | None, *, forget: bool) -> int | None:
        """How far a reader of the journal is that runs elsewhere; None if it is not known. With a
        sequence it is that far from now on, and pruning waits for it."""


class Component:
    """Belongs to the event loop that it is made on."""

    def __init__(
        self,
        namespace: str,
        queue: Queue,
        offer: Callable[[AnyCall], None] | None = None,
        *,
        clock: Clock,
    ) -> None:
        """`offer` stands in for the queue's own way in. Deadlines are times of `clock`."""
        self._clock = clock
        self.namespace = namespace
        self.queue = queue
        self.desk = Desk(asyncio.get_running_loop(), offer or queue.offer)

    def all(
        self, commands: Sequence[Command], *, wait_ms: int | None = None
    ) -> Awaitable[Sequence[Outcome]]:
        return self.desk.call(Call(commands, wait_ms=wait_ms))

    async def one(self, command: Command, kind: type[A]) -> A:
        """The answer; a refusal is raised."""
        outcome = (await self.desk.call(Call((command,))))[0]
        if isinstance(outcome, OmniRelayError):
            raise outcome
        assert isinstance(outcome, kind)
        return outcome

    async def lease(
        self,
        meta: RequestMeta,
        wanted: LeaseRequest | LeaseBatchRequest | CompleteAndLeaseRequest | WorkRequest,
        *,
        max_items: int,
        wait_ms: int | None,
        request_id: str | None = None,
    ) -> tuple[LeaseResponse, ...]:
        call = LeaseCall(
            max_items=max_items,
            wait_ms=self._until_deadline_ms(meta) if wait_ms is None else wait_ms,
            resource_types=wanted.resource_types,
            lease_duration_ms=wanted.lease_duration_ms,
            request_id=request_id,
            peer_id=peer_of(meta, wanted.peer_id),
            principal=meta.principal,
            proof=meta.proof,
        )
        return await self.desk.lease(call)

    def _until_deadline_ms(self, meta: RequestMeta) -> int:
        """So long may a caller wait that said only when it stops listening: the answer that there
        is nothing must still reach it."""
        if meta.expires_ms is None:
            return 0
        left = max(0, meta.expires_ms - self._clock.monotonic_ms())
        return left - min(limits.BEFORE_DEADLINE_MS, left // 4)


def peer_of(meta: RequestMeta, named: str | None = None) -> str | None:
    """The worker: as the body names it, else the proved caller, else what the header says."""
    if named is not None and named.strip():
        return named
    return meta.principal if meta.principal != ANONYMOUS else meta.peer_id
