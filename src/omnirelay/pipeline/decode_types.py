"""Columns in Arrow's types, exactly as Spark translates them: events that are built with these
cross to the JVM without a copy or a cast, and no table needs the JVM to know its own columns."""

from functools import cache

import pyarrow as pa

from omnirelay.model.errors import InvalidOption
from omnirelay.pipeline.schema import EVENT

_PLAIN = {
    "string": pa.string(),
    "bigint": pa.int64(),
    "int": pa.int32(),
    "binary": pa.binary(),
    "boolean": pa.bool_(),
    "double": pa.float64(),
    "float": pa.float32(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "map<string, string>": pa.map_(pa.string(), pa.string()),
    "map<string, bigint>": pa.map_(pa.string(), pa.int64()),
}


@cache
def arrow_schema(ddl: str) -> pa.Schema:
    """Of a table's columns as a Dataset names them."""
    return pa.schema([_field(member, " ") for member in _members(ddl)])


def arrow_type(ddl: str) -> pa.DataType:
    """Of a column as schema.py writes it."""
    if ddl in _PLAIN:
        return _PLAIN[ddl]
    kind, _, inner = ddl.partition("<")
    if kind == "array":
        return pa.list_(pa.field("element", arrow_type(inner[:-1])))
    if kind != "struct":
        known = ", ".join(_PLAIN)
        raise InvalidOption(f"no column can be of type {ddl!r}: use {known}, array<…> or struct<…>")
    return pa.struct([_field(member, ": ") for member in _members(inner[:-1])])


def _field(member: str, between: str) -> pa.Field:
    name, _, kind = member.partition(between)
    return pa.field(name, arrow_type(kind))


def _members(text: str) -> list[str]:
    """Parted at the commas that stand in no bracket of their own."""
    members, depth, start = [], 0, 0
    for place, sign in enumerate(text):
        depth += (sign == "<") - (sign == ">")
        if sign == "," and not depth:
            members.append(text[start:place].strip())
            start = place + 1
    return [*members, text[start:].strip()]


TYPES: dict[str, pa.DataType] = {name: arrow_type(ddl) for name, ddl in EVENT.items()}
ITEM: pa.StructType = TYPES["items"].value_type
SCHEMA = pa.schema(list(TYPES.items()))
