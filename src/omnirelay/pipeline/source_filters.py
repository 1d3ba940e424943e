"""Conditions that Spark hands down, as bounds of what is read. They only ever narrow: Spark looks
at every row again, so that what is not understood here costs time and never a wrong row."""

from collections.abc import Iterable
from datetime import UTC, datetime

import msgspec
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from omnirelay.model.items import to_ms

_EVER = (1 << 63) - 1


class Bounds(msgspec.Struct, frozen=True, kw_only=True):
    shards: frozenset[str] | None = None
    event_types: frozenset[str] | None = None
    after: int = 0
    through: int = _EVER
    from_ms: int | None = None
    to_ms: int | None = None


def bounds_of(filters: Iterable[Filter]) -> Bounds:
    bounds = Bounds()
    for one in filters:
        path = getattr(one, "attribute", ())
        if path == ("shard",):
            bounds = msgspec.structs.replace(bounds, shards=_among(one, bounds.shards))
        elif path == ("event_type",):
            bounds = msgspec.structs.replace(bounds, event_types=_among(one, bounds.event_types))
        elif path == ("sequence",):
            low, high = _between(one)
            bounds = msgspec.structs.replace(
                bounds,
                after=max(bounds.after, 0 if low is None else low - 1),
                through=min(bounds.through, _EVER if high is None else high),
            )
        elif path == ("timestamp",):
            bounds = _in_time(bounds, one)
    return bounds


def _among(one: Filter, known: frozenset[str] | None) -> frozenset[str] | None:
    if isinstance(one, EqualTo) and isinstance(one.value, str):
        named = frozenset([one.value])
    elif isinstance(one, In):
        named = frozenset(value for value in one.value if isinstance(value, str))
    else:
        return known
    return named if known is None else known & named


def _between(one: Filter) -> tuple[int | None, int | None]:
    """The least and the greatest whole number that the condition lets through."""
    if isinstance(one, In):
        numbers = [value for value in one.value if isinstance(value, int)]
        return (min(numbers), max(numbers)) if numbers else (None, None)
    value = getattr(one, "value", None)
    if not isinstance(value, int) or isinstance(value, bool):
        return None, None
    match one:
        case EqualTo():
            return value, value
        case GreaterThan():
            return value + 1, None
        case GreaterThanOrEqual():
            return value, None
        case LessThan():
            return None, value - 1
        case LessThanOrEqual():
            return None, value
    return None, None


def _in_time(bounds: Bounds, one: Filter) -> Bounds:
    """By whole milliseconds, rounded to the wider side."""
    value = getattr(one, "value", None)
    if not isinstance(value, datetime):
        return bounds
    at = to_ms(value.astimezone(UTC))
    low, high = bounds.from_ms, bounds.to_ms
    if isinstance(one, EqualTo | GreaterThan | GreaterThanOrEqual):
        low = at - 1 if low is None else max(low, at - 1)
    if isinstance(one, EqualTo | LessThan | LessThanOrEqual):
        high = at + 2 if high is None else min(high, at + 2)
    return msgspec.structs.replace(bounds, from_ms=low, to_ms=high)
