"""The fast reading of envelopes says what the exact one says. No Spark here."""

from typing import Any, get_args

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omnirelay.journal.format import Envelope, unseal
from omnirelay.lease.records import Record
from omnirelay.model.errors import InvalidArgument
from omnirelay.pipeline.decode import EVENT_TYPES, Part, batch_of
from omnirelay.pipeline.decode_types import SCHEMA
from omnirelay.pipeline.schema import EVENT
from omnirelay.testing.envelopes import Scribe
from omnirelay.testing.event_rows import rows_of
from tests.spark.record_strategies import BY_KIND, envelopes


def exactly(held: list[Envelope]) -> list[dict[str, Any]]:
    rows = [row for envelope in held for row in rows_of(envelope)]
    found: list[dict[str, Any]] = pa.RecordBatch.from_pylist(rows, schema=SCHEMA).to_pylist()
    return found


def scribbled(count: int) -> list[Envelope]:
    scribe = Scribe("s")
    sealed = [scribe.seal(3) for _ in range(count)]
    return [unseal(one.body, shard="s", at=one.first) for one in sealed]


@settings(max_examples=150, deadline=None)
@given(st.lists(envelopes(), min_size=1, max_size=4))
def test_columns_of_any_envelopes_are_the_exact_rows(held: list[Envelope]) -> None:
    batch = batch_of(held, Part())
    batch.validate(full=True)
    assert batch.schema.equals(SCHEMA)
    assert batch.to_pylist() == exactly(held)


@settings(max_examples=50, deadline=None)
@given(st.lists(envelopes(), min_size=1, max_size=3), st.data())
def test_a_part_has_the_rows_and_columns_that_were_asked_for(
    held: list[Envelope], data: st.DataObject
) -> None:
    names = tuple(data.draw(st.lists(st.sampled_from(list(EVENT)), min_size=1, unique=True)))
    kinds = data.draw(st.none() | st.sets(st.sampled_from(sorted(EVENT_TYPES))))
    middle = held[0].first
    found = batch_of(held, Part(names=names, after=middle, through=middle + 4, event_types=kinds))
    assert found.to_pylist() == [
        {name: row[name] for name in names}
        for row in exactly(held)
        if middle < row["sequence"] <= middle + 4 and (kinds is None or row["event_type"] in kinds)
    ]


def test_every_kind_of_record_is_drawn() -> None:
    """Else the properties above would say less than they seem to."""
    assert set(BY_KIND) == set(get_args(Record))


def test_a_part_without_columns_still_counts_its_rows() -> None:
    assert batch_of(scribbled(2), Part(names=())).num_rows == 6


def test_a_number_beyond_the_table_is_refused_rather_than_cut() -> None:
    envelope = scribbled(1)[0]
    broken = msgspec.structs.replace(envelope, epoch=1 << 70)
    with pytest.raises(OverflowError):
        batch_of([broken], Part())


@pytest.mark.parametrize("time", [-1, 253_402_300_800_000, 1 << 62])
def test_a_time_that_nobody_can_say_is_refused_rather_than_wrapped(time: int) -> None:
    broken = msgspec.structs.replace(scribbled(1)[0], time=time)
    with pytest.raises(InvalidArgument, match="after the year 9999"):
        batch_of([broken], Part())
