"""Which stored envelopes are believed. The others are set aside with a reason, and the reading
goes on: one flipped bit must not stop the history of a year."""

from collections.abc import Callable, Iterable, Iterator, Sequence

import pyarrow as pa

from omnirelay.journal.format import Envelope, unseal
from omnirelay.model.errors import Corrupt, InvalidArgument
from omnirelay.pipeline.address import Damage, Seen, Stored
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


class Inspector:
    """Walks the envelopes of one shard in order. Each is judged by itself and by the one before,
    nothing else, so that a part of a journal is judged as the whole would be. Behind one that
    cannot be read the link is taken as it is."""

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
        yield stored, self._judge(stored, expected)

    def _judge(self, stored: Stored, expected: int) -> Envelope | Damage:
        try:
            envelope = unseal(stored.body, shard=self._shard, at=stored.first)
        except Corrupt as error:
            self._last, self._link = stored.last, None
            return Damage(stored.first, _why(error, self._shard), stored.body)
        link, self._last, self._link = self._link, envelope.last, envelope.checksum
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


def whole_batches(
    seen: Iterable[Seen], part: Part, on_damage: Callable[[Damage], None] | None = None
) -> Iterator[pa.RecordBatch]:
    """The events of the envelopes that are whole; `on_damage` hears of the others, and of those
    that are whole and fit no table, before the batch they would be in is given out."""
    note = on_damage or _pass_over
    for group in _gathered(seen, note):
        try:
            batch = batch_of([envelope for _, envelope in group], part)
        except UNFIT:
            yield from _those_that_fit(group, part, note)
            continue
        if batch.num_rows:
            yield batch


def damages(seen: Iterable[Seen]) -> Iterator[Damage]:
    """All that `whole_batches` leaves out."""
    found: list[Damage] = []
    for _ in whole_batches(seen, Part(), found.append):
        yield from found
        found.clear()
    yield from found


def link_in(seen: Iterable[Seen], sequence: int) -> str | None:
    """Checksum of the whole envelope among these that holds the sequence."""
    for _, verdict in seen:
        if isinstance(verdict, Envelope) and verdict.first <= sequence <= verdict.last:
            return verdict.checksum
    return None


def _pass_over(damage: Damage) -> None:
    return None


def _those_that_fit(
    group: Sequence[tuple[Stored, Envelope]], part: Part, note: Callable[[Damage], None]
) -> Iterator[pa.RecordBatch]:
    for stored, envelope in group:
        try:
            batch_of([envelope], Part())
        except UNFIT as error:
            reason = f"a value in it fits no table: {error}"
            note(Damage(stored.first, reason, stored.body))
        else:
            yield batch_of([envelope], part)


def _gathered(
    seen: Iterable[Seen], note: Callable[[Damage], None]
) -> Iterator[list[tuple[Stored, Envelope]]]:
    held: list[tuple[Stored, Envelope]] = []
    rows = size = 0
    for stored, verdict in seen:
        if isinstance(verdict, Damage):
            note(verdict)
            continue
        held.append((stored, verdict))
        rows += len(verdict.records)
        size += len(stored.body)
        if rows >= ROWS_A_BATCH or size >= BYTES_A_BATCH:
            yield held
            held, rows, size = [], 0, 0
    if held:
        yield held
