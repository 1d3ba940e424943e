"""Queue states as of a sequence or a time, rebuilt from events on Spark, a shard a task."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec

from omnirelay.lease.image import Part, thaw
from omnirelay.lease.state import QueueState
from omnirelay.model import limits
from omnirelay.model.errors import Corrupt, InvalidArgument
from omnirelay.pipeline.replay_files import Foldable, folded_files
from omnirelay.pipeline.replay_fold import OUTCOME, Wanted, fold_shards
from omnirelay.pipeline.replay_pieces import FOLDED, Bounds

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# Several shards a core even out a large one beside small ones; more would only cost start-ups.
TASKS_PER_CORE = 4
_part = msgspec.json.Decoder(Part)


@dataclass(frozen=True, kw_only=True)
class Moment:
    """Of which shard, and up to when. Neither sequence nor time: all there is."""

    shard: str | None = None
    sequence: int | None = None
    time: datetime | None = None

    def __post_init__(self) -> None:
        if self.sequence is not None and self.time is not None:
            raise InvalidArgument("replay up to a sequence or up to a time, not both")
        if self.time is not None and self.time.tzinfo is None:
            raise InvalidArgument(f"time {self.time.isoformat()} has no zone; use UTC with Z")

    def of(self, events: "DataFrame") -> "DataFrame":
        from pyspark.sql import functions as f

        if self.shard is not None:
            events = events.where(f.col("shard") == self.shard)
        if self.sequence is not None:
            events = events.where(f.col("sequence") <= self.sequence)
        if self.time is not None:
            # A shard's clock never goes back, so this keeps a beginning without holes.
            events = events.where(f.col("timestamp") <= f.lit(self.time))
        return events


def rebuild(events: Foldable, moment: Moment) -> dict[str, QueueState]:
    """The state of each shard. Raises Corrupt for a range that is damaged, InvalidArgument for a
    moment or shard that the events do not have."""
    with _folded(events, moment, "state") as folded:
        parts: dict[str, list[Part]] = {shard: [] for shard in folded.ends}
        for row in folded.rows("state"):
            parts[row.shard].append(_part.decode(bytes(row.body)))
    return {shard: thaw(found) for shard, found in sorted(parts.items())}


@dataclass(frozen=True)
class Written:
    shard: str
    sequence: int
    items: int
    file: str


def write_files(
    events: Foldable, moment: Moment, to: Path, *, include_dead: bool = True
) -> list[Written]:
    """Drain files that `restore` takes: `to` itself if there is one shard, else one a shard in the
    folder `to`. Nothing is written before every shard is known to be whole."""
    if to.is_file():
        raise _taken(to)
    with _folded(events, moment, "items", include_dead=include_dead) as folded:
        paths = _paths(sorted(folded.ends), to)
        for path in paths.values():
            _make(path)
        counts = dict.fromkeys(paths, 0)
        # A shard is one task's work from end to end, so its rows lie together and in order.
        for shard, rows in groupby(folded.rows("item"), key=lambda row: row.shard):
            with paths[shard].open("ab") as file:
                for row in rows:
                    file.write(bytes(row.body) + b"\n")
                    counts[shard] += 1
    return [
        Written(shard, folded.ends[shard], counts[shard], str(path))
        for shard, path in paths.items()
    ]


def _paths(shards: list[str], to: Path) -> dict[str, Path]:
    if len(shards) == 1 and not to.is_dir():
        return {shards[0]: to}
    to.mkdir(parents=True, exist_ok=True)
    return {shard: to / f"{_file_word(shard)}.jsonl" for shard in shards}


def _file_word(shard: str) -> str:
    """A name is a user's text: nothing in it may leave the folder, and no two meet in a file."""
    plain = "".join(one if one.isalnum() or one in "-_" else f"%{ord(one):x}" for one in shard)
    return plain or "%"


def _make(path: Path) -> None:
    try:
        path.touch(exist_ok=False)
    except FileExistsError:
        raise _taken(path) from None


def _taken(path: Path) -> InvalidArgument:
    return InvalidArgument(f"{path} is there already: choose another")


# -- the run ------------------------------------------------------------------------------------


class Folded:
    """What the tasks gave, kept until it was read."""

    def __init__(self, outcome: "DataFrame") -> None:
        self._outcome = outcome
        self._size = 0
        self.ends: dict[str, int] = {}
        """How far each shard was folded."""

    def add_end(self, shard: str, sequence: int, size: int) -> None:
        self.ends[shard] = sequence
        self._size += size

    def rows(self, kind: Literal["state", "item"]) -> Iterator["OutcomeRow"]:
        """A shard's together, and in order."""
        found = self._outcome.where(f"kind = '{kind}'").select("shard", "body")
        if self._size <= limits.REPLAY_HELD_BYTES_MAX:
            # One query instead of one a shard.
            table = found.toArrow()
            yield from map(OutcomeRow, table["shard"].to_pylist(), table["body"].to_pylist())
            return
        for row in found.toLocalIterator():
            yield OutcomeRow(row["shard"], row["body"])


@dataclass(frozen=True)
class OutcomeRow:
    shard: str
    body: bytes


@contextmanager
def _folded(
    events: Foldable, moment: Moment, wanted: Wanted, *, include_dead: bool = True
) -> Iterator[Folded]:
    from pyspark.storagelevel import StorageLevel

    if events.files is None:
        outcome = _outcome(events.rows(), moment, wanted, include_dead=include_dead)
    else:
        bounds = Bounds(moment.shard, moment.sequence, moment.time)
        outcome = folded_files(
            events.session, events.files, bounds, wanted, include_dead=include_dead
        )
    # Kept on disk: all shards are folded at once, and read afterwards one by one, which a driver
    # of any size can do.
    outcome = outcome.persist(StorageLevel.DISK_ONLY)
    try:
        folded = Folded(outcome)
        said = outcome.where("kind IN ('end', 'damaged', 'pruned')").collect()
        for row in sorted(said, key=lambda row: (row["shard"], row["kind"])):
            _check(row["kind"], row["shard"], row["sequence"], row["why"])
            folded.add_end(row["shard"], row["sequence"], row["number"])
        _check_moment(events, moment, folded.ends)
        yield folded
    finally:
        outcome.unpersist()


def _outcome(
    events: "DataFrame", moment: Moment, wanted: Wanted, *, include_dead: bool
) -> "DataFrame":
    """Of rows that lie anywhere, in any order."""
    names = [name.strip() for name in FOLDED.split(",")]
    tasks = _cores(events) * TASKS_PER_CORE
    sorted_rows = (
        moment.of(events)
        .select(*names)
        .repartition(tasks, "shard")
        .sortWithinPartitions("shard", "sequence")
    )
    fold = partial(fold_shards, wanted=wanted, include_dead=include_dead)
    return sorted_rows.mapInArrow(fold, OUTCOME)


def _cores(events: "DataFrame") -> int:
    session = events.sparkSession
    try:
        return max(1, int(session.sparkContext.defaultParallelism))
    except (AttributeError, NotImplementedError, RuntimeError):
        # Spark Connect shows no context; its cluster evens out what we name too few.
        return int(session.conf.get("spark.sql.shuffle.partitions", "8") or 8)


def _check(kind: str, shard: str, sequence: int, why: str) -> None:
    if kind == "damaged":
        raise Corrupt(shard, sequence, why)
    if kind == "pruned":
        raise InvalidArgument(
            f"shard {shard}: what is kept begins at sequence {sequence}; a state cannot be rebuilt "
            f"without the beginning: replay from the tables or the archive that have it"
        )


def _check_moment(events: Foldable, moment: Moment, ends: dict[str, int]) -> None:
    short = {shard: end for shard, end in ends.items() if end < (moment.sequence or 0)}
    if short:
        shard, end = min(short.items())
        raise InvalidArgument(
            f"shard {shard} ends at sequence {end}: there is no {moment.sequence} yet"
        )
    if not ends:
        raise InvalidArgument(_why_nothing(events.rows(), moment))


def _why_nothing(events: "DataFrame", moment: Moment) -> str:
    """Only asked when it went wrong: a second look at all events costs as much as the first."""
    from pyspark.sql import functions as f

    begin_at = f.date_format(f.min("timestamp"), "yyyy-MM-dd'T'HH:mm:ss.SSS'Z'")
    ranges = events.groupBy("shard").agg(f.min("sequence").alias("first"), begin_at.alias("begin"))
    known = {row["shard"]: (row["first"], row["begin"]) for row in ranges.collect()}
    if not known:
        return "there are no events: is this the right place?"
    if moment.shard is not None and moment.shard not in known:
        return f"there is no shard {moment.shard!r}; there are: {', '.join(sorted(known))}"
    shard = moment.shard or min(known, key=lambda one: known[one])
    first, begin = known[shard]
    if moment.time is not None:
        return f"shard {shard} begins at {begin}, after {moment.time.isoformat()}"
    return f"sequence {moment.sequence} was pruned: shard {shard} begins at {first}"
