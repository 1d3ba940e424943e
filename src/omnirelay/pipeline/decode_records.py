"""What each column of the event table takes from each kind of record, many records at a time."""

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnirelay.lease.records import (
    Completed,
    Drained,
    Enqueued,
    EpochStarted,
    Expired,
    Failed,
    Followed,
    Granted,
    Purged,
    Redriven,
    Refused,
    Released,
    Renewed,
    Restored,
    Stored,
)
from omnirelay.model.errors import InvalidArgument
from omnirelay.pipeline.decode_types import ITEM, TYPES

_LAST_MS = 253_402_300_799_999
"""The last millisecond of the year 9999: what Python, Parquet readers and people can still say."""

# Any: the members of a struct are of as many types as it has members.
Values = Sequence[Any]


class Turned:
    """Like structs, turned over: each member as one list of values, made when it is asked for."""

    def __init__(self, structs: Values) -> None:
        self._structs = structs
        self._inner: dict[str, Turned] = {}
        self.count = len(structs)

    def member(self, path: str) -> Values:
        """`payload.body` is the member of a member. A struct that is None has all its members
        None."""
        name, _, rest = path.partition(".")
        if rest:
            if name not in self._inner:
                self._inner[name] = Turned(self.member(name))
            return self._inner[name].member(rest)
        try:
            return list(map(attrgetter(name), self._structs))
        except AttributeError:
            return [None if one is None else getattr(one, name) for one in self._structs]


Make = Callable[[Turned, pa.DataType], pa.Array]


def as_it_is(path: str) -> Make:
    return lambda turned, kind: pa.array(turned.member(path), kind)


def unless_zero(path: str) -> Make:
    return lambda turned, kind: pa.array([value or None for value in turned.member(path)], kind)


def time(path: str) -> Make:
    return lambda turned, kind: times(turned.member(path), kind)


def time_unless_zero(path: str) -> Make:
    return lambda turned, kind: times([value or None for value in turned.member(path)], kind)


def times(values: Values, kind: pa.DataType) -> pa.Array:
    """Milliseconds since 1970 as timestamps. Raises InvalidArgument beyond the year 9999."""
    milliseconds = pa.array(values, pa.int64())
    ends = pc.min_max(milliseconds).as_py()
    if ends["min"] is not None and not (ends["min"] >= 0 and ends["max"] <= _LAST_MS):
        raise InvalidArgument("a time in it is before 1970 or after the year 9999")
    return pc.multiply(milliseconds, 1000).cast(kind)


def always(value: Any) -> Make:
    return lambda turned, kind: pa.repeat(pa.scalar(value, kind), turned.count)


def as_json(path: str) -> Make:
    def make(turned: Turned, kind: pa.DataType) -> pa.Array:
        return pa.array([_json.encode(v).decode() for v in turned.member(path)], kind)

    return make


_json = msgspec.json.Encoder()


def text_map(path: str) -> Make:
    return lambda turned, kind: text_maps(turned.member(path), kind)


def text_maps(maps: Values, kind: pa.DataType) -> pa.Array:
    """Dictionaries of text, or None."""
    if not any(maps) and {} not in maps:
        return pa.nulls(len(maps), kind)
    names: list[str] = []
    values: list[str] = []
    offsets: list[int | None] = []
    for one in maps:
        offsets.append(None if one is None else len(names))
        if one:
            names += one
            values += one.values()
    offsets.append(len(names))
    return pa.MapArray.from_arrays(
        pa.array(offsets, pa.int32()),
        pa.array(names, pa.string()),
        pa.array(values, pa.string()),
    )


def refusals(turned: Turned, kind: pa.DataType) -> pa.Array:
    told = zip(turned.member("verb"), turned.member("times"), strict=True)
    return pa.array([[("verb", verb), ("times", str(times))] for verb, times in told], kind)


def lags(turned: Turned, kind: pa.DataType) -> pa.Array:
    names = Followed.__struct_fields__
    told = zip(*(map(str, turned.member(name)) for name in names), strict=True)
    return pa.array([list(zip(names, one, strict=True)) for one in told], kind)


def listed(groups: Sequence[Values | None], members: dict[str, pa.Array], count: int) -> pa.Array:
    """The `items` column: `members` are those of all groups' items, one after the other."""
    ends = np.cumsum([len(group or ()) for group in groups], dtype=np.int32)
    starts = np.concatenate([np.zeros(1, np.int32), ends])
    is_null = np.array([*(group is None for group in groups), False])
    columns = [members.get(f.name, pa.nulls(count, f.type)) for f in ITEM]
    return pa.ListArray.from_arrays(
        pa.array(starts, pa.int32(), mask=is_null),
        pa.StructArray.from_arrays(columns, fields=list(ITEM)),
        type=TYPES["items"],
    )


def whole_items(turned: Turned, _kind: pa.DataType) -> pa.Array:
    groups = turned.member("items")
    flat = Turned([item for group in groups for item in group])
    columns = {name: make(flat, ITEM.field(name).type) for name, make in _ITEM.items()}
    return listed(groups, columns, flat.count)


def beats(turned: Turned, _kind: pa.DataType) -> pa.Array:
    groups = turned.member("beats")
    flat = [beat for group in groups for beat in group]
    ids, fences, expiries = zip(*flat, strict=True) if flat else ((), (), ())
    columns = {
        "sequence_id": pa.array(ids, pa.int64()),
        "fence": pa.array(fences, pa.int64()),
        "expires_at": times(expiries, ITEM.field("expires_at").type),
    }
    return listed(groups, columns, len(flat))


def ids(turned: Turned, _kind: pa.DataType) -> pa.Array:
    groups = turned.member("sequence_ids")
    flat = pa.array([number for group in groups for number in group], pa.int64())
    return listed(groups, {"sequence_id": flat}, len(flat))


def same(*names: str) -> dict[str, Make]:
    return {name: as_it_is(name) for name in names}


PAYLOAD: dict[str, Make] = {
    **{
        name: as_it_is(f"payload.{name}")
        for name in (
            "resource_type",
            "resource_id",
            "partition_key",
            "payload_encoding",
            "body",
            "request_id",
        )
    },
    "attributes": text_map("payload.attributes"),
}
ERROR: dict[str, Make] = {
    "error_message": as_it_is("error.message"),
    "error_code": as_it_is("error.code"),
}
_OWNED = same("sequence_id", "attempt", "lease_id", "fence", "peer_id", "principal")
_PROVED = same("principal", "proof")
_BY = same("peer_id", "principal", "proof")
_ITEM: dict[str, Make] = {
    **PAYLOAD,
    **same("sequence_id", "attempt", "priority", "dead", "origin"),
    "enqueued_at": time("enqueued_at"),
    "available_at": time_unless_zero("available_at"),
    "max_attempts": unless_zero("max_attempts"),
    "lease_ms": unless_zero("lease_ms"),
    "error_message": as_it_is("last_error.message"),
    "error_code": as_it_is("last_error.code"),
    "last_attempt": as_it_is("last_token.attempt"),
    "last_lease_id": as_it_is("last_token.lease_id"),
    "last_fence": as_it_is("last_token.fence"),
}

COLUMNS: dict[type[Stored], dict[str, Make]] = {
    EpochStarted: {"origin": as_it_is("origin"), "rules": as_json("rules")},
    Enqueued: {
        **PAYLOAD,
        **same("sequence_id", "priority", "peer_id", "principal", "proof"),
        "attempt": always(1),
        "available_at": time_unless_zero("available_at"),
        "max_attempts": unless_zero("max_attempts"),
        "lease_ms": unless_zero("lease_ms"),
    },
    Granted: {
        **_OWNED,
        **same("lease_ms", "proof"),
        "expires_at": time("expires_at"),
        "lease_request_id": as_it_is("request_id"),
    },
    Renewed: {**_BY, "items": beats},
    Completed: {**_OWNED, **_PROVED},
    Failed: {
        **_OWNED,
        **_PROVED,
        **ERROR,
        "disposition": as_it_is("disposition"),
        "available_at": time_unless_zero("available_at"),
        "details": text_map("details"),
    },
    Expired: {**_OWNED, **ERROR, "disposition": as_it_is("disposition")},
    Released: {**_OWNED, **_PROVED},
    Drained: {**_BY, "items": whole_items},
    Restored: {**_BY, "items": whole_items, "fence_floor": as_it_is("fence_floor")},
    Redriven: {**_BY, "items": ids, "extra_attempts": as_it_is("extra_attempts")},
    Purged: {**_BY, "items": ids},
    Refused: {
        **_BY,
        **same("sequence_id", "attempt", "lease_id"),
        "error_code": as_it_is("code"),
        "details": refusals,
    },
    Followed: {"details": lags},
}
KINDS = tuple(COLUMNS)
