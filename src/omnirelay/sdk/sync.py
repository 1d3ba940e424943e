"""The same API for threads. No second implementation: each method runs the async one over a link
that blocks, so its coroutine ends without ever suspending."""

from collections.abc import Callable, Coroutine, Iterator
from typing import Any, Concatenate, ParamSpec, TypeVar

from omnirelay.journal.checkpoint import Apply
from omnirelay.journal.events import Event
from omnirelay.journal.follower import FollowerStatus
from omnirelay.mesh.rest import run_now
from omnirelay.sdk.client import Relay
from omnirelay.sdk.lease import Lease, Leasing

P = ParamSpec("P")
R = TypeVar("R")
Call = Coroutine[Any, Any, R]


def _relay(
    method: Callable[Concatenate[Relay, P], Call[R]],
) -> "Callable[Concatenate[SyncRelay, P], R]":
    def blocking(self: "SyncRelay", /, *args: P.args, **kwargs: P.kwargs) -> R:
        return run_now(method(self.relay, *args, **kwargs))

    blocking.__doc__ = method.__doc__
    return blocking


def _lease(
    method: Callable[Concatenate[Lease, P], Call[R]],
) -> "Callable[Concatenate[SyncLease, P], R]":
    def blocking(self: "SyncLease", /, *args: P.args, **kwargs: P.kwargs) -> R:
        return run_now(method(self.lease, *args, **kwargs))

    blocking.__doc__ = method.__doc__
    return blocking


class SyncLease:
    """A lease for a thread; `lost` may be asked with `lost.is_set()` or `lost.wait_blocking()`."""

    def __init__(self, lease: Lease) -> None:
        self.lease = lease
        self.payload, self.body = lease.payload, lease.body
        self.resource_type, self.resource_id = lease.resource_type, lease.resource_id
        self.sequence_id, self.attempt = lease.sequence_id, lease.attempt
        self.token, self.fence, self.lost = lease.token, lease.fence, lease.lost
        self.owner_peer_id, self.last_error = lease.owner_peer_id, lease.last_error
        self.enqueued_at_ms = lease.enqueued_at_ms

    @property
    def is_over(self) -> bool:
        return self.lease.is_over

    def __repr__(self) -> str:
        return repr(self.lease)

    complete = _lease(Lease.complete)
    fail = _lease(Lease.fail)
    release = _lease(Lease.release)


class SyncLeasing:
    def __init__(self, leasing: Leasing) -> None:
        self._leasing = leasing

    def take(self) -> SyncLease:
        """A lease to finish by hand. Raises NothingToLease when the wait is over."""
        return SyncLease(run_now(self._leasing.take()))

    def __enter__(self) -> SyncLease:
        return SyncLease(run_now(self._leasing.__aenter__()))

    def __exit__(self, *error: Any) -> None:
        run_now(self._leasing.__aexit__(*error))


class SyncRelay:
    def __init__(self, relay: Relay) -> None:
        self.relay = relay

    enqueue = _relay(Relay.enqueue)
    enqueue_many = _relay(Relay.enqueue_many)
    stats = _relay(Relay.stats)
    inspect = _relay(Relay.inspect)
    drain = _relay(Relay.drain)
    restore = _relay(Relay.restore)
    dead_letters = _relay(Relay.dead_letters)
    redrive = _relay(Relay.redrive)
    purge = _relay(Relay.purge)
    close = _relay(Relay.close)

    def lease(self, **wish: Any) -> SyncLeasing:
        """As `Relay.lease` (wait, types, duration, request_id, renew, peer_id), for `with`."""
        return SyncLeasing(self.relay.lease(**wish))

    def lease_many(self, max_items: int, **wish: Any) -> list[SyncLease]:
        """As `Relay.lease_many`."""
        return [SyncLease(lease) for lease in run_now(self.relay.lease_many(max_items, **wish))]

    def complete_many(self, leases: list[SyncLease]) -> list[Any]:
        """As `Relay.complete_many`."""
        return run_now(self.relay.complete_many([one.lease for one in leases]))

    def complete_and_lease(
        self, leases: list[SyncLease], max_items: int, **wish: Any
    ) -> tuple[list[Any], list[SyncLease]]:
        """As `Relay.complete_and_lease`."""
        done = [one.lease for one in leases]
        outcomes, taken = run_now(self.relay.complete_and_lease(done, max_items, **wish))
        return outcomes, [SyncLease(lease) for lease in taken]

    def events(self, after: int = 0) -> Iterator[Event]:
        """Every committed event after a sequence, up to the end of the journal."""
        events = self.relay.events(after, follow=False)
        while True:
            try:
                yield run_now(events.__anext__())  # type: ignore[arg-type]
            except StopAsyncIteration:
                return

    def follow(self, name: str, apply: Apply) -> None:
        """As `Relay.follow`; `apply` is a coroutine function and runs on the followers' thread."""
        self.relay.follow(name, apply)

    def unfollow(self, name: str, *, forget: bool = False) -> None:
        """As `Relay.unfollow`."""
        self.relay.unfollow(name, forget=forget)

    def followers(self) -> list[FollowerStatus]:
        return self.relay.followers()

    def __enter__(self) -> "SyncRelay":
        return self

    def __exit__(self, *error: Any) -> None:
        self.close()
