"""Which stored envelopes are believed. The others are set aside with a reason, and the reading
goes on: one flipped bit must not stop the history of a year."""

from collections.abc import Iterable, Iterator

import msgspec
import pyarrow as pa

from omnirelay.journal.format import Envelope, unseal
from omnirelay.model.errors import Corrupt, InvalidArgument
from omnirelay.pipeline.address import Damage
from omnirelay.pipeline.decode import Part, batch_of

QUARANTINE: dict[str, str] = {
    "shard": "string",
    "sequence": "bigint",
    "address": "string",
    "reason": "string",
    "body": "binary",
    "found_at": "timestamp",
}
QUARANTINE_DDL = ", ".join(f"{name} {kind}" for name, kind in QUARANTINE.items())

ROWS_A_BATCH = 16_384
"""Enough for Arrow to be worth it, few enough to stay in the processor's cache."""
BYTES_A_BATCH = 32 << 20
UNFIT = (OverflowError, pa.ArrowInvalid, InvalidArgument)


class Stored(msgspec.Struct, frozen=True, gc=False):
    """An envelope as a store holds it: the keys it is found by, and its bytes, unchecked."""

    first: int
    last: int
    body: bytes


Verdict = Envelope | Damage
Seen = tuple[Stored, Verdict]
"""A stretch that is missing is seen with the envelope behind it."""


class Inspector:
    """Walks the envelopes of one shard in order. After a damaged one the next link cannot be
    judged and is taken as it is; every later one can."""

    def __init__(self, shard: str, before: Stored | None) -> None:
        """`before` is the envelope stored before the first that is looked at; None if that one is
        the oldest of the journal."""
        self._shard = shard
        self._last: int | None = None
        """Where the one before ended; None if nothing is known of it."""
        self._link: str | None = None
        self._is_first = before is None
        if before is not None:
            for _ in self.look(before):
                pass

    def look(self, stored: Stored) -> Iterator[Seen]:
        if self._is_first and stored.first == 1:
            self._last, self._link = 0, ""
        self._is_first = False
        expected = stored.first if self._last is None else self._last + 1
        if stored.first > expected:
            yield stored, Damage(expected, f"{_stretch(expected, stored.first - 1)} missing")
            self._link = None
        verdict = self._judge(stored, expected)
        self._last = verdict.last if isinstance(verdict, Envelope) else stored.last
        yield stored, verdict

    def _judge(self, stored: Stored, expected: int) -> Verdict:
        try:
            envelope = unseal(stored.body, shard=self._shard, at=stored.first)
        except Corrupt as error:
            self._link = None
            return Damage(stored.first, _why(error, self._shard), stored.body)
        link, self._link = self._link, envelope.checksum
        reason = None
        if envelope.last != stored.last:
            reason = f"it is stored as ending at {stored.last} and says {envelope.last}"
        elif stored.first < expected:
            reason = f"it begins at {stored.first}, where the one before ends at {expected - 1}"
        elif link is not None and envelope.prev != link:
            reason = f"it follows checksum {envelope.prev or '(none)'}, the journal has {link}"
        return envelope if reason is None else Damage(stored.first, reason, stored.body)


def _stretch(first: int, last: int) -> str:
    return f"sequence {first} is" if first == last else f"sequences {first} to {last} are"


def _why(error: Corrupt, shard: str) -> str:
    return error.message.removeprefix(
        f"shard {shard}: journal is damaged at sequence {error.sequence}: "
    )


def whole_batches(seen: Iterable[Seen], part: Part) -> Iterator[pa.RecordBatch]:
    """The events of the envelopes that are whole."""
    for group in _gathered(seen):
        try:
            batch = batch_of([envelope for _, envelope in group], part)
        except UNFIT:
            yield from (batch_of([whole], part) for _, whole in group if _unfit(whole) is None)
            continue
        if batch.num_rows:
            yield batch


def damages(seen: Iterable[Seen]) -> Iterator[Damage]:
    """The envelopes that are not whole, and those that are and fit no table."""
    found: list[Damage] = []

    def noted() -> Iterator[Seen]:
        for one in seen:
            if isinstance(one[1], Damage):
                found.append(one[1])
            yield one

    for group in _gathered(noted()):
        try:
            batch_of([envelope for _, envelope in group], Part())
        except UNFIT:
            found += [
                Damage(envelope.first, reason, stored.body)
                for stored, envelope in group
                if (reason := _unfit(envelope)) is not None
            ]
        yield from found
        found.clear()
    yield from found


def _unfit(envelope: Envelope) -> str | None:
    """Why a whole envelope can be in no table: its writer broke the bounds of the format."""
    try:
        batch_of([envelope], Part())
    except UNFIT as error:
        return f"a value in it fits no table: {error}"
    return None


def _gathered(seen: Iterable[Seen]) -> Iterator[list[tuple[Stored, Envelope]]]:
    held: list[tuple[Stored, Envelope]] = []
    rows = size = 0
    for stored, verdict in seen:
        if isinstance(verdict, Envelope):
            held.append((stored, verdict))
            rows += len(verdict.records)
            size += len(stored.body)
        if rows >= ROWS_A_BATCH or size >= BYTES_A_BATCH:
            yield held
            held, rows, size = [], 0, 0
    if held:
        yield held
