"""What a table of the pipeline is, said once: its columns, its inputs, how it moves on.

A table knows how far it has come (per shard, the last sequence it includes) and moves from there to
where its inputs are. That is all the coupling there is: a batch run and a stream take the same
steps, and whatever a crash left behind is what the next run begins with.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Protocol

from omnirelay.model.errors import InvalidOption, OmniRelayError
from omnirelay.pipeline.schema import EVENT_DDL, VERSION

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LAYERS = ("bronze", "silver", "gold", "audit", "quarantine")
EVENTS = "lease_events"

Kind = Literal["append", "carry", "merge"]
NOT_READ = -1
"""In the place of a version: nobody knows which was read to its end."""
Positions = Mapping[str, int]
"""Shard to the last sequence that is included."""


@dataclass(frozen=True)
class Expectation:
    """A predicate that every row a step writes must meet; a row for which it is null does not."""

    name: str
    holds: str
    severity: Literal["fail", "warn"] = "fail"
    """`fail`: the table stays where it is. `warn`: counted and said."""


@dataclass(frozen=True)
class Step:
    session: "SparkSession"
    new: "DataFrame"
    """The events after this table's positions, up to those of its inputs; schema.EVENT."""
    old: "DataFrame | None"
    """carry: the open rows. merge: the whole table. append, or no table yet: None."""
    read: "Callable[[str], DataFrame | None]"
    """Another table by name, as far as it has come; None if it is not there yet."""
    recent: "Callable[[str], DataFrame]"
    """Of an input that is a carry table: its open rows, and those closed after this table's
    positions; all of them in a first step."""
    moves: Mapping[str, tuple[int, int]]
    """Of each shard that has something new: from which sequence (not included) to which."""
    is_first: bool
    """There is nothing in the table yet."""
    types: frozenset[str] | None = None
    """Of the new events; None: nobody looked."""

    def may_have(self, *types: str) -> bool:
        return self.types is None or not self.types.isdisjoint(types)

    def some(self, *types: str) -> "DataFrame":
        """The new events, for whoever wants these types of them alone. If there are none, nothing;
        and what would be made from nothing Spark leaves out of its plan."""
        return self.new if self.may_have(*types) else self.new.where("false")


@dataclass(frozen=True)
class Change:
    """What a step does to its table, in one commit.

    append   rows that are added and stay: carry's newly closed ones
    replace  carry: all open rows; merge: the whole table. None leaves them as they are
    rows     carry, instead of the two: open and closed rows in one frame, told apart by `state`,
             so that what both come from is computed once
    files    the rows of `append`, written into a folder by others than Spark's own writer: gives
             the names of the Parquet files. Whoever commits may use either
    """

    append: "DataFrame | None" = None
    replace: "DataFrame | None" = None
    rows: "DataFrame | None" = None
    files: Callable[[str], list[str]] | None = None


@dataclass(frozen=True)
class Older:
    """A table that an older program wrote, and what a migration may look at."""

    rows: "DataFrame"
    read: "Callable[[str], DataFrame | None]"
    """As in Step: the inputs may be further than the table."""
    positions: Positions


@dataclass(frozen=True)
class Dataset:
    name: str
    layer: str
    columns: str
    """DDL; the order is the table's."""
    key: tuple[str, ...]
    kind: Kind
    inputs: tuple[str, ...]
    advance: Callable[[Step], Change] | None
    """None: not made from events by steps, but filled by whoever declares it."""
    expectations: tuple[Expectation, ...] = ()
    partition_by: str | None = None
    """`state` for a carry table, else None: files are found by their statistics."""
    version: int = 1
    migrations: "tuple[Callable[[Older], DataFrame], ...]" = ()
    """The n-th (from 0) makes rows of version n + 2 from rows of version n + 1."""

    def __post_init__(self) -> None:
        if self.layer not in LAYERS:
            raise InvalidOption(f"{self.name}: there is no layer {self.layer!r}")
        if (self.partition_by == "state") != (self.kind == "carry"):
            raise InvalidOption(f"{self.name}: a carry table, and no other, is split by `state`")
        if len(self.migrations) != self.version - 1:
            raise InvalidOption(f"{self.name}: version {self.version} needs a migration for each")

    @property
    def has_bodies(self) -> bool:
        """What people hand in stands in its rows: their number says nothing of their bytes."""
        return "binary" in self.columns


@dataclass(frozen=True)
class Snapshot:
    """A table at one version: what a step began from and what its commit must still find."""

    version: int = -1
    """-1: there is no table yet."""
    positions: dict[str, int] = field(default_factory=dict)
    fence: int = 0
    """The highest lease of a pipeline that has written here."""
    inputs: dict[str, int] = field(default_factory=dict)
    """Table to the version of it that was read to its end: files from before hold nothing new."""
    links: dict[str, int] = field(default_factory=dict)
    """Of the event table: by which envelope each shard's position is known again."""
    retired: dict[str, int] = field(default_factory=dict)
    """Of the event table: up to where a shard's events were let go for their age."""


class TableMoved(OmniRelayError):
    """Somebody committed since the step began. Nothing was written; begin again from there."""

    status = "FAILED_PRECONDITION"
    code = "error.pipeline.table_moved"

    def __init__(self, table: str, version: int) -> None:
        super().__init__(
            f"table {table}: another commit came after version {version}; run again",
            table=table,
            version=version,
        )


class TableFenced(OmniRelayError):
    """A pipeline with a newer lease has written. This one's time is over."""

    status = "FAILED_PRECONDITION"
    code = "error.pipeline.fenced"

    def __init__(self, table: str, fence: int, current: int) -> None:
        super().__init__(
            f"table {table}: the lease with fence {fence} is over, a pipeline with fence {current} "
            f"writes now",
            table=table,
            fence=fence,
            current=current,
        )


class OtherJournal(OmniRelayError):
    """A journal that has a shard's name and not its past."""

    status = "FAILED_PRECONDITION"
    code = "error.pipeline.other_journal"

    def __init__(self, shard: str, sequence: int, why: str) -> None:
        super().__init__(
            f"shard {shard}: this is not the journal that these tables were made from, or an older "
            f"copy of it: {why}. Name the right one, or another target",
            shard=shard,
            sequence=sequence,
        )


class TableTooNew(OmniRelayError):
    status = "FAILED_PRECONDITION"
    code = "error.pipeline.table_too_new"

    def __init__(self, table: str, version: int, known: int) -> None:
        super().__init__(
            f"table {table} has schema version {version} and this program knows {known}: use the "
            f"newer omnirelay that wrote it",
            table=table,
            version=version,
            known=known,
        )


class ExpectationFailed(OmniRelayError):
    status = "DATA_LOSS"
    code = "error.pipeline.expectation"

    def __init__(self, table: str, name: str, rows: int) -> None:
        super().__init__(
            f"table {table}: {rows} rows do not meet the expectation {name!r}; the table stays as "
            f"it was",
            table=table,
            expectation=name,
            rows=rows,
        )


@dataclass(frozen=True)
class Commit:
    """What goes into one commit beside its rows."""

    base: Snapshot
    positions: Positions
    """Only shards that move need be named."""
    fence: int = 0
    inputs: Positions = field(default_factory=dict)
    """As in Snapshot."""
    links: Positions = field(default_factory=dict)
    retired: Positions = field(default_factory=dict)
    vet: Callable[[int], None] | None = None
    """Told how many rows were written, before anyone sees them; raising refuses them."""


@dataclass(frozen=True)
class Committed:
    rows: int
    """Written, whether new or in the place of others."""
    warned: dict[str, int] = field(default_factory=dict)
    """Expectation to how many of these rows do not meet it."""


class Tables(Protocol):
    """Where the tables are. One writer at a time gets through; readers never wait."""

    session: "SparkSession"
    root: str

    def names(self) -> list[str]:
        """Of the tables that are there, as `layer/table`."""

    def positions(self, name: str) -> dict[str, int]:
        """How far a table has come, named as here or by `names`."""

    def read(self, name: str) -> "DataFrame | None":
        """All rows at the newest version, or None if there is no such table."""

    def read_open(self, name: str) -> "DataFrame | None":
        """The open rows of a carry table."""

    def read_events(self, after: Snapshot, upto: Positions) -> "DataFrame":
        """Events after `after.positions` and not beyond `upto`."""

    def types_of_events(self, after: Snapshot) -> frozenset[str] | None:
        """Those that any event after `after.positions` has, and maybe others; None if it would take
        long to find out."""

    def read_recent(self, name: str, after: Snapshot) -> "DataFrame":
        """The open rows of a carry table, and those with an `ended_sequence` after
        `after.positions`; may be others too."""

    def snapshot(self, dataset: Dataset) -> Snapshot:
        """Raises TableTooNew."""

    def migrate(self, dataset: Dataset, fence: int) -> bool:
        """Bring an older table to the dataset's version, in one commit. False: nothing to do."""

    def commit(self, dataset: Dataset, change: Change, commit: Commit) -> Committed:
        """All of it becomes visible at once, or nothing does.

        Raises TableMoved if the table is not at `commit.base`, TableFenced if it carries a higher
        fence, ExpectationFailed if a row does not meet one.
        """


LEASE_EVENTS = Dataset(
    name=EVENTS,
    layer="bronze",
    columns=EVENT_DDL,
    key=("shard", "sequence"),
    kind="append",
    inputs=(),
    advance=None,
    version=VERSION,
)
QUARANTINED = Dataset(
    name="quarantined",
    layer="quarantine",
    columns="shard string, sequence bigint, address string, reason string, body binary, "
    "found_at timestamp",
    key=("shard", "sequence", "address", "reason"),
    kind="append",
    inputs=(),
    advance=None,
)


def all_datasets() -> tuple[Dataset, ...]:
    """Every table that is made from events, each after its inputs."""
    # They are made of the types above.
    from omnirelay.pipeline import gold, silver

    return in_order((*silver.DATASETS, *gold.DATASETS))


def in_order(datasets: Iterable[Dataset]) -> tuple[Dataset, ...]:
    """Inputs first. Raises InvalidOption for a name used twice, an input nobody makes, a circle."""
    left = list(datasets)
    names = [EVENTS, *(dataset.name for dataset in left)]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InvalidOption(f"two tables are called {', '.join(twice)}")
    ordered: list[Dataset] = []
    while left:
        ready = {EVENTS, *(dataset.name for dataset in ordered)}
        following = [dataset for dataset in left if set(dataset.inputs) <= ready]
        if not following:
            stuck = ", ".join(f"{d.name} of {sorted(set(d.inputs) - ready)}" for d in left)
            raise InvalidOption(f"tables whose inputs are never made: {stuck}")
        ordered += following
        left = [dataset for dataset in left if dataset not in following]
    return tuple(ordered)
