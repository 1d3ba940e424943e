"""The tables' SQL: one text for Spark and for DuckDB, the few words they say differently apart.

A statement names the frames it reads as `$new`, `$old`, `$lease_attempts`; whoever runs it says
which frames these are. Spark is where the tables are made; DuckDB is the yardstick of the bench.
"""

# ruff: noqa: S608 - put together from constants; no value from outside comes into the text

from collections.abc import Mapping
from dataclasses import dataclass
from string import Template
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ITEM_ORDER = "PARTITION BY shard, sequence_id ORDER BY sequence"
"""An item's own events, in the order of the journal: few, so no window is ever wide."""


@dataclass(frozen=True)
class Dialect:
    name: Literal["spark", "duckdb"]

    @property
    def is_spark(self) -> bool:
        return self.name == "spark"

    def pack(self, *columns: str) -> str:
        """Columns as one value. `a AS b` names what is not a column."""
        pairs = [(one.rpartition(" AS ")[0] or one, one.rpartition(" AS ")[2]) for one in columns]
        if self.is_spark:
            return "named_struct(" + ", ".join(f"'{name}', {value}" for value, name in pairs) + ")"
        return "struct_pack(" + ", ".join(f"{name} := {value}" for value, name in pairs) + ")"

    def packed(self, fields: Mapping[str, str], values: Mapping[str, str], when: str) -> str:
        """All `fields` (name to type) as one value where `when` holds, else null; so that a row
        that has none of them carries none of them through a shuffle."""
        chosen = (
            f"CAST({values.get(name, 'NULL')} AS {kind}) AS {name}" for name, kind in fields.items()
        )
        return f"CASE WHEN {when} THEN {self.pack(*chosen)} END"

    def last_known(self, value: str, order: str = ITEM_ORDER) -> str:
        """The newest value up to this row that is not null."""
        frame = f"({order} ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)"
        if self.is_spark:
            return f"last_value({value}) IGNORE NULLS OVER {frame}"
        return f"last_value({value} IGNORE NULLS) OVER {frame}"

    def each(self, array: str) -> str:
        return f"explode({array})" if self.is_spark else f"unnest({array})"

    def ms(self, time: str) -> str:
        return f"unix_millis({time})" if self.is_spark else f"epoch_ms({time})"

    def later(self, time: str, ms: str) -> str:
        if self.is_spark:
            return f"timestampadd(MILLISECOND, {ms}, {time})"
        return f"({time} + to_milliseconds({ms}))"

    def whole_number(self, json: str, member: str) -> str:
        if self.is_spark:
            return f"CAST(get_json_object({json}, '$$.{member}') AS BIGINT)"
        return f"CAST(json_extract_string({json}, '$$.{member}') AS BIGINT)"

    @property
    def numbers(self) -> str:
        """The type of a list of whole numbers."""
        return "ARRAY<BIGINT>" if self.is_spark else "BIGINT[]"

    def listed(self, values: str) -> str:
        """An aggregate: all values that are not null, in any order."""
        if self.is_spark:
            return f"collect_list({values})"
        return f"list({values}) FILTER (WHERE {values} IS NOT NULL)"

    def joined_sorted(self, lists: str) -> str:
        """An aggregate: what is in any of the lists, least first."""
        if self.is_spark:
            return f"sort_array(flatten(collect_list({lists})))"
        return f"coalesce(list_sort(flatten({self.listed(lists)})), [])"

    def nth(self, values: str, place: str) -> str:
        """Counted from 1; null beyond the end."""
        return f"get({values}, {place} - 1)" if self.is_spark else f"({values})[{place}]"

    def length(self, values: str) -> str:
        return f"size({values})" if self.is_spark else f"len({values})"

    def minutes(self, first: str, last: str) -> str:
        """One row for each minute that holds a moment from `first` to `last`."""
        series = "sequence" if self.is_spark else "generate_series"
        ends = f"date_trunc('minute', {first}), date_trunc('minute', {last})"
        return self.each(f"{series}({ends}, INTERVAL 1 MINUTE)")


SPARK = Dialect("spark")
DUCKDB = Dialect("duckdb")
DUCKDB_MACROS = ("CREATE OR REPLACE MACRO sha2(text, bits) AS sha256(text)",)
"""What DuckDB must be told once before it understands the rest."""


def rows_like(columns: Mapping[str, str], values: Mapping[str, str], source: str) -> str:
    """A SELECT of all `columns` (name to type) in order; what `values` does not name is null."""
    assert values.keys() <= columns.keys(), f"no such columns: {values.keys() - columns.keys()}"
    chosen = (
        f"{values[name]} AS {name}" if name in values else f"CAST(NULL AS {kind}) AS {name}"
        for name, kind in columns.items()
    )
    return f"SELECT {', '.join(chosen)} FROM {source}"


def names_of(ddl: str) -> tuple[str, ...]:
    """The columns of a table whose types have no commas of their own."""
    return tuple(part.split()[0] for part in ddl.split(","))


def run_sql(session: "SparkSession", statement: str, **frames: "DataFrame") -> "DataFrame":
    """Frames go in by value, so that nothing is left registered and Spark Connect works too."""
    text = Template(statement).substitute({name: "{" + name + "}" for name in frames})
    return session.sql(text, None, **frames)


def named_sql(statement: str, **tables: str) -> str:
    """The statement over tables that the engine knows by name."""
    return Template(statement).substitute(tables)
