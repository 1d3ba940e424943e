"""One pipeline at a time on one target: it holds a lease, as any worker of ours does, and every
commit carries the lease's fence.

The lease is on an item of its own type, `pipeline:<target>`, since a worker asks for types: a mesh
may hold the leases of many pipelines beside its other work. Without a mesh the queue is a journal
in the target's own folder. Its file has one owner at a time, so whoever opens it knows that the
owner before is gone, and need not wait for that one's lease to run out.
"""

import hashlib
import os
import socket
from pathlib import Path
from threading import Event
from types import TracebackType
from typing import Protocol
from urllib.parse import quote

import omnirelay
from omnirelay.lease.answers import ItemView
from omnirelay.lease.commands import Inspect
from omnirelay.mesh.rest import run_now
from omnirelay.model import limits
from omnirelay.model.errors import (
    InvalidOption,
    JournalOwned,
    NothingToLease,
    OmniRelayError,
    UnknownItem,
)
from omnirelay.model.items import to_time
from omnirelay.model.ports import Clock, SystemClock
from omnirelay.sdk.sync import SyncLease, SyncRelay

FOLDER = "_lease"
LEASE_S = 30.0
_LOOK_S = 0.1
"""How often a file that another process owns is tried again, while there is time."""
_MAX_NAME = limits.NAME_CHARS_MAX // 2


class PipelineHeld(OmniRelayError):
    """Another pipeline works on the target."""

    status = "FAILED_PRECONDITION"
    code = "error.pipeline.held"

    def __init__(self, target: str, holder: str) -> None:
        super().__init__(
            f"{target} is worked on by {holder}: stop it, or wait until it is done",
            target=target,
            holder=holder,
        )


class HoldLost(OmniRelayError):
    """The lease ran out or was taken over. Nothing may be committed any more."""

    status = "FAILED_PRECONDITION"
    code = "error.pipeline.hold_lost"

    def __init__(self, target: str, why: str) -> None:
        super().__init__(f"the lease on {target} is lost ({why}): run again", target=target)


class Holding(Protocol):
    """The pipeline's own lease, as its steps need it."""

    @property
    def fence(self) -> int: ...

    def check(self) -> None:
        """Raises HoldLost."""


class Unheld:
    """For a target that nobody else can reach."""

    fence = 0

    def check(self) -> None:
        """There is nothing to lose."""


class Hold:
    """`with Hold(target) as hold:`; `hold.fence` goes into every commit, `hold.check()` before it.

    Entering raises PipelineHeld, naming the holder, if nobody lets go within `wait_s`.
    """

    def __init__(
        self,
        target: str,
        *,
        url: str | None = None,
        token: str | None = None,
        wait_s: float = 0.0,
        lease_s: float = LEASE_S,
        clock: Clock | None = None,
    ) -> None:
        """`url`: a node's address; else the lease is kept in the target's folder."""
        if url is None and not Path(target).is_absolute() and ":" in target:
            raise InvalidOption(
                f"{target} is no folder that could keep the pipeline's lease: name a mesh that does"
            )
        self.target = target
        self._url = url
        self._token = token
        self._wait_s = wait_s
        self._lease_s = lease_s
        self._clock = clock or SystemClock()
        self._relay: SyncRelay | None = None
        self._lease: SyncLease | None = None

    @property
    def fence(self) -> int:
        assert self._lease is not None
        return self._lease.fence

    def check(self) -> None:
        """Raises HoldLost. A process that was stopped for a while may ask before its heart has
        noticed, so the time is looked at too."""
        assert self._lease is not None
        lease = self._lease.lease
        if lease.lost.is_set():
            raise HoldLost(self.target, lease.lost.reason or "it was refused")
        if self._clock.monotonic_ms() >= lease.renewed_at_ms + lease.lease_ms:
            raise HoldLost(self.target, "its time ran out")

    def __enter__(self) -> "Hold":
        self._relay = self._connected()
        try:
            self._lease = self._taken(self._relay)
        except BaseException:
            self._relay.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._relay is not None
        assert self._lease is not None
        try:
            self._lease.release()
        except OmniRelayError:
            pass  # lost already; it is another's, or nobody's, and the error that matters is out
        finally:
            self._relay.close()

    def _connected(self) -> SyncRelay:
        peer = f"pipeline-{socket.gethostname()}-{os.getpid()}"
        if self._url is not None:
            return omnirelay.connect_sync(self._url, token=self._token, peer_id=peer)
        folder = Path(self.target) / FOLDER
        folder.mkdir(parents=True, exist_ok=True)
        relay = self._opened(f"sqlite:///{quote(str(folder / 'leases.db'))}", peer)
        while relay.drain(include_active=True, include_dead=True).items:
            pass
        return relay

    def _opened(self, url: str, peer: str) -> SyncRelay:
        until = self._clock.monotonic_ms() + self._wait_s * 1000
        while True:
            try:
                return omnirelay.connect_sync(url, peer_id=peer)
            except JournalOwned as owned:
                if self._clock.monotonic_ms() >= until:
                    holder = "another process" if owned.pid is None else f"process {owned.pid}"
                    raise PipelineHeld(self.target, holder) from owned
            Event().wait(_LOOK_S)

    def _taken(self, relay: SyncRelay) -> SyncLease:
        kind = resource_type(self.target)
        if self._view(relay, kind) is None:
            # Two that come at once ask for the same item; one that somebody took out of the queue
            # is made anew.
            attempts = limits.ATTEMPTS_MAX
            relay.enqueue(kind, self.target, request_id=kind, max_attempts=attempts)
            if self._view(relay, kind) is None:
                relay.enqueue(kind, self.target, max_attempts=attempts)
        try:
            return relay.lease(types=[kind], wait=self._wait_s, duration=self._lease_s).take()
        except NothingToLease:
            raise PipelineHeld(self.target, self._holder(relay, kind)) from None

    def _view(self, relay: SyncRelay, kind: str) -> ItemView | None:
        command = Inspect(resource_type=kind, resource_id=self.target)
        try:
            view = run_now(relay.relay.one(command))
        except UnknownItem:
            return None
        except OmniRelayError as error:
            if error.status == "NOT_FOUND":  # the same, from a node
                return None
            raise
        assert isinstance(view, ItemView)
        return view

    def _holder(self, relay: SyncRelay, kind: str) -> str:
        view = self._view(relay, kind)
        if view is None or view.owner_peer_id is None:
            return "another pipeline"
        until = "" if view.expires_at is None else f" until {to_time(view.expires_at):%H:%M:%S} UTC"
        return f"{view.owner_peer_id}, whose lease runs{until} unless renewed"


def resource_type(target: str) -> str:
    kind = f"pipeline:{target}"
    if len(kind) <= _MAX_NAME:
        return kind
    return f"pipeline:{hashlib.sha256(target.encode()).hexdigest()}"
