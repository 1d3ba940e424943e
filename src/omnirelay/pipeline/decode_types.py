"""The event schema in Arrow's types, exactly as Spark translates it: what is built with these
crosses to the JVM without a copy or a cast."""

import pyarrow as pa

from omnirelay.pipeline.schema import EVENT

_PLAIN = {
    "string": pa.string(),
    "bigint": pa.int64(),
    "int": pa.int32(),
    "binary": pa.binary(),
    "boolean": pa.bool_(),
    "timestamp": pa.timestamp("us", "UTC"),
    "map<string, string>": pa.map_(pa.string(), pa.string()),
}


def arrow_type(ddl: str) -> pa.DataType:
    """Of a column as schema.py writes it."""
    if ddl in _PLAIN:
        return _PLAIN[ddl]
    inner = ddl.partition("<")[2][:-1]
    if ddl.startswith("array<"):
        return pa.list_(pa.field("element", arrow_type(inner)))
    return pa.struct([_field(member) for member in _members(inner)])


def _field(member: str) -> pa.Field:
    name, _, kind = member.partition(": ")
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
