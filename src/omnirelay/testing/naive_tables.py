"""The silver tables worked out the slow way: one record after another, one shard at a time.

The oracle of the pipeline's SQL. It shares nothing with it but the column names, keeps every item
in a dictionary and does what the record says. Times are milliseconds.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from omnirelay.journal.events import event_type
from omnirelay.journal.format import Envelope
from omnirelay.lease import records as r
from omnirelay.model.items import ErrorInfo, Payload

Row = dict[str, Any]  # Any: one row of mixed columns
Tables = dict[str, list[Row]]
_DEAD = "deadLettered"


@dataclass
class Live:
    """One item that is here, and the lease it is under, if any."""

    payload: Payload
    row: Row
    """Its row of `items`."""
    attempt: int
    queued_at: int | None
    lease: Row | None = None


@dataclass
class Moment:
    """Where and when a record stands."""

    shard: str
    sequence: int
    at: int
    epoch: int
    record: r.Record
    pending: int
    active: int


@dataclass
class Seen:
    """What the gold tables are added up from."""

    moments: list[Moment] = field(default_factory=list)
    touches: list[tuple[str, str, str, str, Moment]] = field(default_factory=list)
    """Principal, resource type and id, action, when."""
    arrivals: list[tuple[str, Payload, Moment]] = field(default_factory=list)
    """How it came, what it is, when."""
    runs: list[tuple[Payload, Row]] = field(default_factory=list)
    """Completed attempts and what their items carried."""
    payloads: dict[int, Payload] = field(default_factory=dict)
    """What each item that ever was here was about, when it last came."""
    grants: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Lease id to the peer and the principal it was granted to."""
    refused: Counter[str] = field(default_factory=Counter)
    """Peer to how often it was refused."""


class NaiveShard:
    def __init__(self, name: str) -> None:
        self.name = name
        self.live: dict[int, Live] = {}
        self.attempts: list[Row] = []
        self.items: list[Row] = []
        self.epochs: list[Row] = []
        self.pauses: list[Row] = []
        self.paused: Row | None = None
        self.rules = (0, 0)
        self.seen = Seen()

    def fold(self, envelopes: Iterable[Envelope]) -> None:
        for envelope in envelopes:
            for index, (sequence, record) in enumerate(envelope.numbered()):
                pending, active = envelope.pending[index], envelope.active[index]
                moment = Moment(
                    self.name, sequence, envelope.time, envelope.epoch, record, pending, active
                )
                self.seen.moments.append(moment)
                self._take(moment, envelope.node)

    def _take(self, m: Moment, node: str) -> None:
        match m.record:
            case r.EpochStarted():
                self._epoch(m, m.record)
            case r.Enqueued():
                self._enqueued(m, m.record)
            case r.Granted():
                self._granted(m, m.record)
            case r.Renewed():
                self._renewed(m, m.record)
            case r.Completed() | r.Failed() | r.Expired() | r.Released():
                self._ended(m, m.record)
            case r.Refused():
                self._refused(m, m.record)
            case r.Followed():
                pass  # only the windows tell of it
            case _:
                self._moved(m, m.record)
        epoch = self.epochs[-1]
        epoch.update(until_sequence=m.sequence, until_at=m.at, events=epoch["events"] + 1)
        self._level(m)

    # -- epochs and depth -------------------------------------------------------------------------

    def _epoch(self, m: Moment, record: r.EpochStarted) -> None:
        for row in self.epochs:
            row["state"] = "closed"
        self.epochs.append(
            {
                "shard": self.name,
                "epoch": record.epoch,
                "node": record.node,
                "origin": record.origin,
                "from_sequence": m.sequence,
                "from_at": m.at,
                "events": 0,
                "state": "open",
            }
        )
        self.rules = (record.rules.pending_high, record.rules.pending_low)
        for live in self.live.values():
            if live.lease is not None:
                live.lease["expires_at"] = m.at + live.lease["lease_ms"]

    def _level(self, m: Moment) -> None:
        high, low = self.rules
        rules = {"epoch": m.epoch, "pending_high": high, "pending_low": low}
        if self.paused is not None and (high == 0 or m.pending <= low):
            pause = {"until_sequence": m.sequence, "until_at": m.at, "state": "closed"}
            self.pauses.append({**self.paused, **rules, **pause})
            self.paused = None
        elif self.paused is None and high and m.pending >= high:
            self.paused = {"shard": self.name, "from_sequence": m.sequence, "from_at": m.at}

    def backpressure(self) -> list[Row]:
        last = self.seen.moments[-1]
        now = self.paused or {"shard": self.name, "from_sequence": None, "from_at": None}
        rules = {"pending_high": self.rules[0], "pending_low": self.rules[1], "state": "open"}
        end = {"epoch": last.epoch, "until_sequence": last.sequence, "until_at": last.at}
        return [*self.pauses, {**now, **rules, **end}]

    # -- one item ---------------------------------------------------------------------------------

    def _arrive(self, m: Moment, payload: Payload, how: str, **more: Any) -> Row:
        row: Row = {
            "shard": self.name,
            "origin": None,
            "resource_type": payload.resource_type,
            "resource_id": payload.resource_id,
            "partition_key": payload.partition_key,
            "request_id": payload.request_id,
            "enqueued_sequence": m.sequence,
            "attempts": 0,
            "first_granted_at": None,
            "ended_at": None,
            "ended_sequence": None,
            "fate": None,
            "last_error_message": None,
            "last_error_code": None,
            "arrived": how,
            "total_ms": None,
            "state": "open",
            **more,
        }
        self.items.append(row)
        self.seen.arrivals.append((how, payload, m))
        self.seen.payloads[row["sequence_id"]] = payload
        return row

    def _touch(self, m: Moment, principal: str, payload: Payload) -> None:
        action = event_type(m.record)
        self.seen.touches.append((principal, payload.resource_type, payload.resource_id, action, m))

    def _enqueued(self, m: Moment, record: r.Enqueued) -> None:
        row = self._arrive(
            m,
            record.payload,
            "enqueue",
            sequence_id=record.sequence_id,
            priority=record.priority,
            enqueued_at=m.at,
            enqueued_by=record.principal,
        )
        queued = max(m.at, record.available_at)
        self.live[record.sequence_id] = Live(record.payload, row, 1, queued)
        self._touch(m, record.principal, record.payload)

    def _granted(self, m: Moment, record: r.Granted) -> None:
        live = self.live[record.sequence_id]
        live.row["attempts"] += 1
        live.row["first_granted_at"] = live.row["first_granted_at"] or m.at
        assert live.queued_at is not None
        live.lease = self._attempt(record.sequence_id, live) | {
            "attempt": record.attempt,
            "fence": record.fence,
            "lease_id": record.lease_id,
            "peer_id": record.peer_id,
            "principal": record.principal,
            "proof": record.proof,
            "granted_at": m.at,
            "granted_sequence": m.sequence,
            "lease_ms": record.lease_ms,
            "heartbeats": 0,
            "expires_at": record.expires_at,
            "wait_ms": m.at - live.queued_at,
        }
        self.seen.grants[record.lease_id] = (record.peer_id or "", record.principal)
        self._touch(m, record.principal, live.payload)

    def _refused(self, m: Moment, record: r.Refused) -> None:
        seen = self.seen
        about = seen.payloads.get(record.sequence_id or 0, Payload("", ""))
        for _ in range(record.times):
            self._touch(m, record.principal, about)
        peer, principal = seen.grants.get(record.lease_id or "", ("", None))
        if principal == record.principal:
            seen.refused[peer] += record.times

    def _attempt(self, sequence_id: int, live: Live) -> Row:
        """The row of an item that nobody holds; a grant fills it in."""
        empty = (
            "fence lease_id peer_id principal proof granted_at granted_sequence lease_ms"
            " last_heartbeat_at heartbeats expires_at ended_at ended_sequence outcome disposition"
            " error_message error_code ended_by wait_ms hold_ms"
        )
        return dict.fromkeys(empty.split()) | {
            "shard": self.name,
            "sequence_id": sequence_id,
            "attempt": live.attempt,
            "resource_type": live.payload.resource_type,
            "resource_id": live.payload.resource_id,
            "partition_key": live.payload.partition_key,
            "queued_at": live.queued_at,
            "state": "open",
        }

    def _renewed(self, m: Moment, record: r.Renewed) -> None:
        for sequence_id, _, expires_at in record.beats:
            lease = self.live[sequence_id].lease
            assert lease is not None
            lease.update(last_heartbeat_at=m.at, expires_at=expires_at)
            lease["heartbeats"] += 1

    def _end_lease(self, m: Moment, live: Live, outcome: str, by: str, **more: Any) -> Row:
        lease = live.lease
        assert lease is not None
        hold = m.at - lease["granted_at"]
        lease.update(ended_at=m.at, ended_sequence=m.sequence, outcome=outcome, ended_by=by)
        lease.update(hold_ms=hold, state="closed", **more)
        self.attempts.append(lease)
        live.lease = None
        return lease

    def _ended(self, m: Moment, record: r.Completed | r.Failed | r.Expired | r.Released) -> None:
        live = self.live[record.sequence_id]
        error = _error(getattr(record, "error", None))
        disposition = getattr(record, "disposition", None)
        outcome = event_type(record).lower()
        lease = self._end_lease(
            m, live, outcome, record.principal, disposition=disposition, **error
        )
        self._touch(m, record.principal, live.payload)
        if isinstance(record, r.Completed):
            self.seen.runs.append((live.payload, lease))
            self._leave(m, record.sequence_id, "completed")
            return
        live.queued_at = m.at
        live.attempt = record.attempt
        if isinstance(record, r.Released):
            return
        live.row.update({f"last_{name}": value for name, value in error.items()})
        if disposition == _DEAD:
            self._die(m, live)
            return
        live.attempt += 1
        live.queued_at = max(m.at, getattr(record, "available_at", 0))

    def _die(self, m: Moment, live: Live) -> None:
        live.queued_at = None
        self._fate(m, live, _DEAD)

    def _fate(self, m: Moment, live: Live, fate: str) -> None:
        total = m.at - live.row["enqueued_at"]
        live.row.update(fate=fate, ended_at=m.at, ended_sequence=m.sequence, total_ms=total)

    def _leave(self, m: Moment, sequence_id: int, fate: str) -> None:
        live = self.live.pop(sequence_id)
        self._fate(m, live, fate)
        live.row["state"] = "closed"

    # -- many items -------------------------------------------------------------------------------

    def _moved(self, m: Moment, record: r.Record) -> None:
        match record:
            case r.Drained():
                for item in record.items:
                    self._drained(m, item, record.principal)
            case r.Restored():
                for item in record.items:
                    self._restored(m, item, record.principal)
            case r.Redriven():
                for sequence_id in record.sequence_ids:
                    live = self.live[sequence_id]
                    live.attempt += 1
                    live.queued_at = m.at
                    live.row.update(fate=None, ended_at=None, ended_sequence=None, total_ms=None)
                    self._touch(m, record.principal, live.payload)
            case r.Purged():
                for sequence_id in record.sequence_ids:
                    self._touch(m, record.principal, self.live[sequence_id].payload)
                    self._leave(m, sequence_id, "purged")

    def _drained(self, m: Moment, item: r.Item, principal: str) -> None:
        live = self.live[item.sequence_id]
        if live.lease is not None:
            self._end_lease(m, live, "drained", principal)
        self._touch(m, principal, item.payload)
        self._leave(m, item.sequence_id, "drained")

    def _restored(self, m: Moment, item: r.Item, principal: str) -> None:
        error = {f"last_{name}": value for name, value in _error(item.last_error).items()}
        row = self._arrive(
            m,
            item.payload,
            "restore",
            sequence_id=item.sequence_id,
            origin=item.origin,
            priority=item.priority,
            enqueued_at=item.enqueued_at,
            enqueued_by=principal,
            **error,
        )
        queued = max(m.at, item.available_at)
        live = self.live[item.sequence_id] = Live(item.payload, row, item.attempt, queued)
        if item.dead:
            self._die(m, live)
        self._touch(m, principal, item.payload)

    def every_attempt(self) -> list[Row]:
        """Those that ended, those that go on, and the items that nobody holds."""
        going_on = [
            live.lease or self._attempt(sequence_id, live)
            for sequence_id, live in self.live.items()
        ]
        return [*self.attempts, *going_on]


def _error(error: ErrorInfo | None) -> Row:
    return {
        "error_message": error.message if error else None,
        "error_code": error.code if error else None,
    }
