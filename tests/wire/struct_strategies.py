"""Examples of any struct that travels, drawn from its own declaration."""

from datetime import UTC
from typing import Any

import msgspec
from hypothesis import strategies as st
from msgspec import inspect

_INT64 = 1 << 63


def structs(kind: type) -> st.SearchStrategy[Any]:
    described = inspect.type_info(kind)
    assert isinstance(described, inspect.StructType)
    return st.builds(kind, **{field.name: _of_field(field) for field in described.fields})


def _of_field(field: inspect.Field) -> st.SearchStrategy[Any]:
    drawn = _of_type(field.type)
    return drawn if field.default is msgspec.NODEFAULT else st.just(field.default) | drawn


def _of_type(described: inspect.Type, *, least: int = 0) -> st.SearchStrategy[Any]:
    match described:
        case inspect.Metadata(type=inner):
            return _of_type(inner, least=least)
        case inspect.UnionType(types=kinds):
            # Where none is possible, an empty collection is not told from it.
            return st.one_of(*(_of_type(kind, least=1) for kind in kinds))
        case inspect.StructType(cls=cls):
            return structs(cls)
        case inspect.VarTupleType(item_type=item):
            return st.lists(_of_type(item), min_size=least, max_size=3).map(tuple)
        case inspect.ListType(item_type=item):
            return st.lists(_of_type(item), min_size=least, max_size=3)
        case inspect.DictType(value_type=value):
            return st.dictionaries(st.text(max_size=8), _of_type(value), min_size=least, max_size=3)
        case _:
            return _of_scalar(described)


def _of_scalar(described: inspect.Type) -> st.SearchStrategy[Any]:
    match described:
        case inspect.NoneType():
            return st.none()
        case inspect.BoolType():
            return st.booleans()
        case inspect.BytesType():
            return st.binary(max_size=64)
        case inspect.DateTimeType():
            return st.datetimes(timezones=st.just(UTC))
        case inspect.StrType(min_length=fewest, max_length=most):
            return st.text(min_size=fewest or 0, max_size=min(most or 16, 16))
        case inspect.IntType(ge=low, le=high):
            return st.integers(
                -_INT64 if low is None else low, _INT64 - 1 if high is None else high
            )
        case _:
            raise NotImplementedError(f"no examples of {described}")
