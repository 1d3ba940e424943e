"""Somebody who watches every command and record and knows what must never be seen.

The rules are those of the history checker (R1, R3 to R6), put so that a single step breaks them.
"""

from typing import NamedTuple

from omnirelay.lease.commands import Command, Complete, Fail, Heartbeat, Release
from omnirelay.lease.records import (
    Completed,
    Drained,
    EpochStarted,
    Expired,
    Failed,
    Granted,
    Record,
    Released,
    Renewed,
    Restored,
)
from omnirelay.model.items import Token


class Watched(NamedTuple):
    """What is known of one item."""

    fence: int = 0
    """Of its newest grant."""
    until: int | None = None
    """How long its holder may rely on it; None: nobody holds it."""
    lease_ms: int = 0
    done_by: int | None = None
    """Fence that completed it."""


class Onlooker(NamedTuple):
    items: tuple[Watched, ...]
    """Item 1 first."""

    @classmethod
    def fresh(cls, items: int) -> "Onlooker":
        return cls((Watched(),) * items)

    def see(
        self, command: Command, records: tuple[Record, ...], now: int, *, is_taken: bool
    ) -> tuple["Onlooker", str]:
        """Who knows more afterwards, and the complaint if this must not have been."""
        complaint = self._presented(command, now, is_taken=is_taken, has_records=bool(records))
        seen = dict(enumerate(self.items, start=1))
        for record in records:
            complaint = complaint or _watch(seen, record, now)
        return Onlooker(tuple(seen.values())), complaint

    def _presented(self, command: Command, now: int, *, is_taken: bool, has_records: bool) -> str:
        """Whoever is believed must have shown the newest grant's token, in its time."""
        if not is_taken or not isinstance(command, Complete | Fail | Release | Heartbeat):
            return ""
        if isinstance(command, Heartbeat):
            tokens = command.tokens if has_records else ()
        else:
            tokens = (command.token,)
        for token in tokens:
            item = self.items[token.sequence_id - 1]
            if isinstance(command, Complete) and not has_records:
                if item.done_by != token.fence:
                    return f"{_word(command, token)} was called done, which it never was"
            elif token.fence != item.fence:
                return f"{_word(command, token)} was accepted, the newest grant is {item.fence}"
            elif item.until is None or now >= item.until:
                return f"{_word(command, token)} was accepted after its lease was over"
        return ""

    def fences(self) -> set[int]:
        return {f for item in self.items for f in (item.fence, item.done_by) if f is not None}

    def relative(self, now: int, rank: dict[int, int]) -> tuple[object, ...]:
        return tuple(
            (
                rank[item.fence],
                -1 if item.until is None else max(0, item.until - now),
                -1 if item.done_by is None else rank[item.done_by],
            )
            for item in self.items
        )


def _word(command: Command, token: Token) -> str:
    verb = type(command).__name__.lower()
    return f"{verb} of item {token.sequence_id} under fence {token.fence}"


def _watch(seen: dict[int, Watched], record: Record, now: int) -> str:
    match record:
        case Granted():
            return _granted(seen, record, now)
        case Completed():
            item = seen[record.sequence_id]
            seen[record.sequence_id] = item._replace(until=None, done_by=record.fence)
            return f"item {record.sequence_id} was completed twice" if item.done_by else ""
        case Expired():
            item = seen[record.sequence_id]
            seen[record.sequence_id] = item._replace(until=None)
            if item.until is not None and now < item.until:
                return f"item {record.sequence_id} expired at {now}, its lease ran to {item.until}"
        case Failed() | Released():
            seen[record.sequence_id] = seen[record.sequence_id]._replace(until=None)
        case Renewed():
            for sequence_id, _, until in record.beats:
                seen[sequence_id] = seen[sequence_id]._replace(until=until)
        case EpochStarted():
            for sequence_id, item in seen.items():
                if item.until is not None:
                    seen[sequence_id] = item._replace(until=now + item.lease_ms)
        case Drained():
            for thing in record.items:
                seen[thing.sequence_id] = seen[thing.sequence_id]._replace(until=None)
        case Restored():
            for thing in record.items:
                if seen[thing.sequence_id].done_by is not None:
                    return f"item {thing.sequence_id} was completed and came back"
        case _:
            pass
    return ""


def _granted(seen: dict[int, Watched], record: Granted, now: int) -> str:
    item = seen[record.sequence_id]
    name = f"item {record.sequence_id}"
    seen[record.sequence_id] = item._replace(
        fence=record.fence, until=record.expires_at, lease_ms=record.lease_ms
    )
    if item.done_by is not None:
        return f"{name} was granted after its completion"
    if record.fence <= item.fence:
        return f"{name} was granted under fence {record.fence} after {item.fence}"
    if item.until is not None and now < item.until:
        return f"{name} was granted at {now}, its holder's time ran to {item.until}"
    if item.until is not None:
        return f"{name} was granted while it was held"
    return ""
