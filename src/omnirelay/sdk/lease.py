"""One lease in a worker's hands."""

import threading
from typing import TYPE_CHECKING, Any

from omnirelay.lease.answers import Answer, LeaseResponse, Returned
from omnirelay.lease.commands import Complete, Fail, Release
from omnirelay.model.errors import InvalidArgument, NothingToLease, OmniRelayError
from omnirelay.model.items import to_ms
from omnirelay.sdk.arguments import optional_milliseconds, proved, storable
from omnirelay.sdk.lost import Lost

if TYPE_CHECKING:
    from collections.abc import Generator
    from types import TracebackType

    from omnirelay.model.items import ErrorInfo, Payload, Token
    from omnirelay.sdk.client import Relay
    from omnirelay.sdk.link import Wish


_making = threading.Lock()


class DeadLetter(Exception):
    """Raised by a handler: this item can never succeed, do not try it again."""


class Lease:
    """Heartbeats run by themselves until the lease is finished or lost, unless it was taken
    without `renew`.

    `fence` grows with every grant of a resource: hand it to whatever you write to, and let that
    refuse a smaller one than it has seen. `lost` is set as soon as ownership is known to be gone.
    """

    __slots__ = (
        "_leased",
        "_lost",
        "_relay",
        "beats_in",
        "is_over",
        "renewed_at_ms",
        "renews",
    )

    def __init__(
        self, relay: "Relay", leased: LeaseResponse, asked_at_ms: int, *, renews: bool = True
    ) -> None:
        self._relay = relay
        self._leased = leased
        self._lost: Lost | None = None
        self.renews = renews
        self.beats_in = -1
        self.renewed_at_ms = asked_at_ms
        self.is_over = False
        """True once completed, failed or released here; heartbeats have stopped."""

    def __repr__(self) -> str:
        return f"<Lease {self.resource_type}/{self.resource_id} fence={self.fence} {self.token}>"

    @property
    def lost(self) -> Lost:
        """An event, set when ownership is gone. Made when somebody looks: of a batch that is
        finished in time nobody does."""
        found = self._lost
        if found is None:
            with _making:
                found = self._lost = self._lost or Lost()
        return found

    @property
    def is_lost(self) -> bool:
        return self._lost is not None and self._lost.is_set()

    @property
    def token(self) -> "Token":
        return self._leased.token

    @property
    def fence(self) -> int:
        return self._leased.fence

    @property
    def attempt(self) -> int:
        return self._leased.attempt

    @property
    def payload(self) -> "Payload":
        return self._leased.payload

    @property
    def sequence_id(self) -> int:
        return self._leased.sequence_id

    @property
    def owner_peer_id(self) -> str | None:
        return self._leased.owner_peer_id

    @property
    def last_error(self) -> "ErrorInfo | None":
        return self._leased.last_error

    @property
    def enqueued_at_ms(self) -> int:
        return to_ms(self._leased.enqueued_at)

    @property
    def lease_ms(self) -> int:
        return self._leased.lease_duration_ms

    @property
    def heartbeat_ms(self) -> int:
        return self._leased.heartbeat_interval_ms

    @property
    def resource_type(self) -> str:
        return self.payload.resource_type

    @property
    def resource_id(self) -> str:
        return self.payload.resource_id

    @property
    def body(self) -> bytes:
        return self.payload.body

    async def complete(self) -> None:
        """The work is done. Raises StaleToken if somebody else holds it by now."""
        await self._end(Complete(token=self.token))

    async def fail(
        self,
        reason: str | None = None,
        *,
        error_code: str | None = None,
        requeue: bool = True,
        delay: float | None = None,
        metadata: dict[str, str] | None = None,
    ) -> Returned:
        """The work failed. `delay` in seconds overrides the queue's backoff."""
        command = proved(
            Fail(
                token=self.token,
                reason=storable(reason),
                error_code=storable(error_code),
                requeue=requeue,
                delay_ms=optional_milliseconds("delay", delay),
                metadata=metadata,
            )
        )
        outcome = await self._end(command)
        assert isinstance(outcome, Returned)
        return outcome

    async def release(self) -> None:
        """Hand the item back untried: the attempt does not count."""
        await self._end(Release(token=self.token))

    def stop_renewing(self) -> None:
        """Before the end is reported, so that no heartbeat can overtake the report."""
        self.is_over = True
        self._relay.heart.remove(self)

    async def _end(self, command: Complete | Fail | Release) -> Answer:
        self.stop_renewing()
        try:
            return await self._relay.one(command)
        except OmniRelayError as error:
            self.refused(error)
            raise

    def refused(self, error: OmniRelayError) -> None:
        """Its end was reported, and this is what was said."""
        if error.status in ("FAILED_PRECONDITION", "NOT_FOUND", "PERMISSION_DENIED"):
            self.lost.set(error.message)
        elif isinstance(error, InvalidArgument):
            self._go_on()

    def _go_on(self) -> None:
        """The report was refused for its own fault, so the lease is held as before."""
        self.is_over = False
        self._relay.heart.add([self])


class Leasing:
    """What `relay.lease()` returns: use it with `async with`, or await it to finish by hand."""

    def __init__(self, relay: "Relay", wish: "Wish", *, renew: bool) -> None:
        self._relay = relay
        self._wish = wish
        self._renew = renew
        self._lease: Lease | None = None

    async def take(self) -> Lease:
        """Raises NothingToLease when the wait is over."""
        leases = await self._relay.take(self._wish, renew=self._renew)
        if not leases:
            raise NothingToLease
        return leases[0]

    def __await__(self) -> "Generator[Any, None, Lease]":
        return self.take().__await__()

    async def __aenter__(self) -> Lease:
        self._lease = await self.take()
        return self._lease

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: "TracebackType | None",
    ) -> None:
        lease = self._lease
        assert lease is not None
        if lease.is_over:
            return
        if error is None:
            await lease.complete()
            return
        try:
            await hand_back(lease, error)
        except OmniRelayError:
            return  # the caller's own exception matters more; the lease expires if need be


async def hand_back(lease: Lease, error: BaseException) -> None:
    """End a lease whose work raised."""
    if lease.is_lost:
        lease.stop_renewing()
    elif isinstance(error, Exception):
        await lease.fail(
            f"{type(error).__name__}: {error}", requeue=not isinstance(error, DeadLetter)
        )
    else:  # cancelled or interrupted: the work was not judged
        await lease.release()
