"""OpenLineage events of the journal, each once: what was sent is remembered by shard."""

import os
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from omnirelay.model.errors import InvalidOption, Unavailable
from omnirelay.pipeline.lineage_events import Row, event_of
from omnirelay.pipeline.lineage_outlets import Outlet
from omnirelay.pipeline.lineage_sql import heads, steps

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SETTLED_EVENTS = 500
"""After so many, what was sent is made safe and remembered: at most so many are sent again by the
run after one that was killed."""


class Sent(msgspec.Struct, frozen=True, rename="camel"):
    """How far a place has got, and what the place itself wants to remember."""

    to: str
    positions: dict[str, int] = {}
    kept: int = 0


class Position:
    """A file that says how far lineage was sent; none: everything, every time."""

    def __init__(self, path: Path | None, to: str) -> None:
        self._path = path
        self._to = to

    def read(self) -> Sent:
        if self._path is None or not self._path.exists():
            return Sent(self._to)
        try:
            sent = msgspec.json.decode(self._path.read_bytes(), type=Sent)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise InvalidOption(f"{self._path} is no position of lineage: {error}") from None
        if sent.to != self._to:
            raise InvalidOption(f"{self._path} is the position of {sent.to}, not of {self._to}")
        return sent

    def write(self, sent: Sent) -> None:
        """Old or new, never half: by renaming."""
        if self._path is None:
            return
        made = self._path.with_name(f".{self._path.name}.part")
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with made.open("wb") as file:
                file.write(msgspec.json.encode(sent))
                file.flush()
                os.fsync(file.fileno())
            made.replace(self._path)
        except OSError as error:
            raise Unavailable(f"{self._path}: {error.strerror}") from error


class Emitted(msgspec.Struct, frozen=True, rename="camel"):
    events: int
    positions: dict[str, int]


def emit(
    events: "DataFrame",
    outlet: Outlet,
    position: Position,
    *,
    namespace: str | None = None,
) -> Emitted:
    """Send what is new since the position. Raises Unavailable if the place stops taking it; what
    it took by then is remembered and the next run goes on from there."""
    sent = position.read()
    upto = heads(events)
    outlet.begin(sent.kept)
    sending = _Sending(outlet, position, sent)
    for rows in _by_sequence(steps(events, sent.positions, upto)):
        sending.send(rows, namespace)
    # Also what told of no start and no end is behind us.
    for shard, last in upto.items():
        sending.positions[shard] = max(last, sending.positions.get(shard, 0))
    sending.settle()
    return Emitted(sending.count, sending.positions)


def _by_sequence(rows: "DataFrame") -> Iterator[list[Row]]:
    """A position lies between sequences, so all that one tells goes together."""
    plain = (row.asDict() for row in rows.toLocalIterator(prefetchPartitions=True))
    for _, group in groupby(plain, key=lambda row: (row["shard"], row["sequence"])):
        yield list(group)


class _Sending:
    def __init__(self, outlet: Outlet, position: Position, sent: Sent) -> None:
        self._outlet = outlet
        self._position = position
        self._sent = sent
        self.positions = dict(sent.positions)
        self.count = 0
        self._unsettled = 0

    def send(self, rows: list[Row], namespace: str | None) -> None:
        """All that one sequence tells."""
        try:
            for row in rows:
                self._outlet.send(event_of(row, namespace))
        except Unavailable as error:
            self.settle()
            raise Unavailable(
                f"{error.message}; {self.count} events were sent, the next run goes on from there"
            ) from error
        self.positions[rows[0]["shard"]] = rows[0]["sequence"]
        self.count += len(rows)
        self._unsettled += len(rows)
        if self._unsettled >= SETTLED_EVENTS:
            self.settle()

    def settle(self) -> None:
        kept = self._outlet.settle()
        self._position.write(Sent(self._sent.to, dict(self.positions), kept))
        self._unsettled = 0
