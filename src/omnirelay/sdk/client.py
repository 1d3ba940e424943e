"""The API of CONTRACT §7. Nothing here knows which wire it speaks through."""

from collections.abc import AsyncIterator, Iterable, Sequence
from types import TracebackType
from typing import TypeVar, cast

import msgspec

from omnirelay.journal.checkpoint import Apply
from omnirelay.journal.events import Event
from omnirelay.journal.follower import FollowerStatus
from omnirelay.lease.answers import (
    Accepted,
    Answer,
    Count,
    DeadPage,
    DrainPage,
    ItemView,
    LeaseResponse,
    RestoreCount,
    Stats,
)
from omnirelay.lease.commands import (
    Command,
    Complete,
    Drain,
    Enqueue,
    Inspect,
    ListDead,
    Purge,
    ReadStats,
    Redrive,
    Restore,
)
from omnirelay.mesh.calls import Outcome
from omnirelay.model import limits
from omnirelay.model.errors import InvalidArgument, InvalidRestore, OmniRelayError
from omnirelay.model.items import Payload, PendingItem
from omnirelay.model.ports import Clock, SystemClock
from omnirelay.sdk.arguments import (
    batches,
    checked_items,
    milliseconds,
    named,
    new_item,
    optional_milliseconds,
    proved,
    type_names,
)
from omnirelay.sdk.heart import Heart
from omnirelay.sdk.lease import Lease, Leasing
from omnirelay.sdk.link import Link, Wish

A = TypeVar("A", bound=Answer)


class Relay:
    """A queue to enqueue to and lease from. Calls made at the same time travel together."""

    def __init__(
        self, link: Link, *, peer_id: str | None = None, clock: Clock | None = None
    ) -> None:
        self.peer_id = None if peer_id is None else named("peer_id", peer_id)
        self._link = link
        self._clock = clock or SystemClock()
        self.heart = Heart(link, self._clock)

    # -- producing ----------------------------------------------------------------------------

    async def enqueue(
        self,
        resource_type: str,
        resource_id: str,
        *,
        body: bytes = b"",
        partition_key: str | None = None,
        attributes: dict[str, str] | None = None,
        payload_encoding: str = "application/octet-stream",
        request_id: str | None = None,
        delay: float = 0.0,
        priority: int = 0,
        max_attempts: int | None = None,
        lease_duration: float | None = None,
    ) -> Accepted:
        """Durable when it returns. The same `request_id` again gives the first item's id with
        `duplicate` set. Waits while the queue is under backpressure, then raises Backpressure."""
        payload = Payload(
            resource_type,
            resource_id,
            partition_key,
            payload_encoding,
            body,
            attributes,
            request_id,
        )
        command = new_item(
            payload,
            delay=delay,
            priority=priority,
            max_attempts=max_attempts,
            lease_duration=lease_duration,
            peer_id=self.peer_id,
        )
        outcome = (await self._link.call((command,)))[0]
        if isinstance(outcome, OmniRelayError):
            raise outcome
        assert isinstance(outcome, Accepted)
        return outcome

    async def enqueue_many(
        self, payloads: Iterable[Payload | Enqueue]
    ) -> list[Accepted | OmniRelayError]:
        """One commit for all of them, one outcome each: a refused item stops no other."""
        checked = checked_items(list(payloads), self.peer_id)
        asked = [item for item in checked if isinstance(item, Enqueue)]
        outcomes: list[Outcome | OmniRelayError] = []
        for batch in batches(asked):
            outcomes += await self._link.call(batch)
        if len(asked) < len(checked):
            coming = iter(outcomes)
            outcomes = [next(coming) if isinstance(item, Enqueue) else item for item in checked]
        return cast("list[Accepted | OmniRelayError]", outcomes)

    # -- working ------------------------------------------------------------------------------

    def lease(
        self,
        *,
        wait: float = 0.0,
        types: Sequence[str] | None = None,
        duration: float | None = None,
        request_id: str | None = None,
        renew: bool = True,
        peer_id: str | None = None,
    ) -> Leasing:
        """`async with relay.lease(wait=30) as lease:` completes on leaving, fails on an exception.
        Raises NothingToLease when nothing came within `wait` seconds. Without `renew` nothing keeps
        it alive: it is lost when its duration has passed. `peer_id` names this holder, in place of
        the relay's own."""
        wish = self.wish(1, wait, types, duration, request_id=request_id, peer_id=peer_id)
        return Leasing(self, wish, renew=renew)

    async def lease_many(
        self,
        max_items: int,
        *,
        wait: float = 0.0,
        types: Sequence[str] | None = None,
        duration: float | None = None,
        request_id: str | None = None,
        renew: bool = True,
        peer_id: str | None = None,
    ) -> list[Lease]:
        """Up to `max_items` leases, at least one unless the wait passes; finish each by hand."""
        wish = self.wish(max_items, wait, types, duration, request_id=request_id, peer_id=peer_id)
        return await self.take(wish, renew=renew)

    def wish(
        self,
        max_items: int,
        wait: float,
        types: Sequence[str] | None,
        duration: float | None,
        *,
        request_id: str | None = None,
        peer_id: str | None = None,
    ) -> Wish:
        """Checked, for `take` and `swap`."""
        wish = Wish(
            max_items=max_items,
            wait_ms=milliseconds("wait", wait) if wait else 0,
            resource_types=type_names(types),
            lease_duration_ms=optional_milliseconds("duration", duration),
            request_id=request_id,
            peer_id=self.peer_id if peer_id is None else named("peer_id", peer_id),
        )
        is_plain = type(max_items) is int and types is None and request_id is None
        return wish if is_plain else proved(wish)

    async def take(self, wish: Wish, *, renew: bool = True) -> list[Lease]:
        return self._held(await self._link.lease(wish), renew=renew)

    def _held(self, leased: Sequence[LeaseResponse], *, renew: bool) -> list[Lease]:
        # A grant that waited was made some time after we asked and some time before we hear of it.
        # The first heartbeat, a third of the lease from now, sets the clock right either way.
        now = self._clock.monotonic_ms()
        leases = [Lease(self, one, now, renews=renew) for one in leased]
        if leases:
            self.heart.add(leases)
        return leases

    async def complete_many(self, leases: Iterable[Lease]) -> list[Outcome]:
        """One commit for all of them, one outcome each."""
        return list(await self._link.call(_completes(leases)))

    async def complete_and_lease(
        self,
        leases: Iterable[Lease],
        max_items: int,
        *,
        types: Sequence[str] | None = None,
        duration: float | None = None,
        renew: bool = True,
        peer_id: str | None = None,
    ) -> tuple[list[Outcome], list[Lease]]:
        """Finish these and take up to `max_items` more in one call and one commit. Does not wait:
        if nothing came, `lease_many` does. One outcome for each that was finished."""
        wish = self.wish(max_items, 0.0, types, duration, peer_id=peer_id)
        return await self.swap(leases, wish, renew=renew)

    async def swap(
        self, leases: Iterable[Lease], wish: Wish, *, renew: bool = True
    ) -> tuple[list[Outcome], list[Lease]]:
        completes = _completes(leases)
        if not completes:
            return [], await self.take(msgspec.structs.replace(wish, wait_ms=0), renew=renew)
        outcomes, leased = await self._link.complete_and_lease(completes, wish)
        return list(outcomes), self._held(leased, renew=renew)

    # -- operating ----------------------------------------------------------------------------

    async def stats(self) -> Stats:
        return await self._typed(ReadStats(), Stats)

    async def inspect(self, sequence_id: int) -> ItemView:
        return await self._typed(Inspect(sequence_id=sequence_id), ItemView)

    async def drain(
        self,
        max_items: int = limits.BATCH_MAX,
        *,
        include_active: bool = False,
        include_dead: bool = False,
    ) -> DrainPage:
        """One page of pending items, out of the queue. Leases go on unless `include_active`."""
        command = Drain(
            max_items=max_items, include_active=include_active, include_dead=include_dead
        )
        return await self._typed(command, DrainPage)

    async def restore(self, items: Iterable[PendingItem]) -> RestoreCount:
        """Bring drained items back, here or from elsewhere. The same items twice change nothing."""
        restored = tuple(items)
        if not all(isinstance(item, PendingItem) for item in restored):
            raise InvalidRestore("pending_item_required", "every restored item is a pending item")
        return await self._typed(Restore(items=restored), RestoreCount)

    async def dead_letters(
        self,
        max_items: int = 100,
        *,
        after: int = 0,
        resource_type: str | None = None,
        resource_id: str | None = None,
    ) -> DeadPage:
        command = ListDead(
            max_items=max_items, after=after, resource_type=resource_type, resource_id=resource_id
        )
        return await self._typed(command, DeadPage)

    async def redrive(
        self,
        *sequence_ids: int,
        max_items: int = limits.BATCH_MAX,
        resource_type: str | None = None,
        resource_id: str | None = None,
    ) -> int:
        """Bring dead letters back to the queue; those named, or all that match."""
        command = Redrive(
            max_items=max_items,
            sequence_ids=sequence_ids or None,
            resource_type=resource_type,
            resource_id=resource_id,
        )
        return (await self._typed(command, Count)).count

    async def purge(
        self,
        *sequence_ids: int,
        max_items: int = limits.BATCH_MAX,
        resource_type: str | None = None,
        resource_id: str | None = None,
    ) -> int:
        """Drop dead letters for good; those named, or all that match."""
        command = Purge(
            max_items=max_items,
            sequence_ids=sequence_ids or None,
            resource_type=resource_type,
            resource_id=resource_id,
        )
        return (await self._typed(command, Count)).count

    def events(self, after: int = 0, *, follow: bool = True) -> AsyncIterator[Event]:
        """Every committed event after a sequence, in order. Without `follow` it ends at the end."""
        if type(after) is not int or after < 0:
            raise InvalidArgument(f"after is {after!r:.80}, must be a sequence, 0 for all events")
        return self._link.events(after, follow=follow)

    def follow(self, name: str, apply: Apply) -> None:
        """Feed `apply` every event, in order, from where the follower `name` last was; its
        position is durable and pruning waits for it. Runs until `unfollow` or close."""
        if not callable(apply):
            raise InvalidArgument(f"a follower applies events with a function, not {apply!r:.80}")
        self._link.follow(named("the follower's name", name), apply)

    def unfollow(self, name: str, *, forget: bool = False) -> None:
        """Stop a follower; `forget` gives up its position, so that pruning waits no more."""
        self._link.unfollow(name, forget=forget)

    def followers(self) -> list[FollowerStatus]:
        return self._link.follower_status()

    # -- plumbing -----------------------------------------------------------------------------

    async def one(self, command: Command) -> Answer:
        """One command, its answer; a refusal is raised."""
        outcome = (await self._link.call((command,)))[0]
        if isinstance(outcome, OmniRelayError):
            raise outcome
        return outcome

    async def _typed(self, command: Command, kind: type[A]) -> A:
        outcome = await self.one(proved(command))
        assert isinstance(outcome, kind)
        return outcome

    async def close(self) -> None:
        await self._link.aside(self.heart.stop)  # it may be waiting for an answer
        await self._link.close()

    async def __aenter__(self) -> "Relay":
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()


def _completes(leases: Iterable[Lease]) -> list[Complete]:
    """For leases that end now: they are renewed no more."""
    ending = list(leases)
    if not all(isinstance(lease, Lease) for lease in ending):
        raise InvalidArgument("only leases can be completed")
    for lease in ending:
        lease.stop_renewing()
    return [Complete(token=lease.token) for lease in ending]
