"""Rows of the event table lead back to the records they came from."""

from typing import Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnirelay.journal.format import Envelope
from omnirelay.lease import records as kinds
from omnirelay.lease.options import Rules
from omnirelay.lease.records import Item, Record
from omnirelay.model.errors import InvalidArgument
from omnirelay.pipeline.records import records_of
from omnirelay.testing import strategies as drawn
from tests.spark.replay_histories import batch_of

ids, fences = drawn.sequence_ids, st.integers(0, 2**52)
ms = st.integers(1, 4_000_000_000_000)
maybe = st.none() | drawn.names
by = {"peer_id": maybe, "principal": drawn.names, "proof": maybe}
owned = {
    "sequence_id": ids,
    "attempt": drawn.attempts,
    "lease_id": drawn.lease_ids,
    "fence": fences,
    "peer_id": maybe,
    "principal": drawn.names,
}
details = st.none() | st.dictionaries(drawn.text, drawn.text, max_size=3)
payloads = drawn.payloads | st.builds(
    lambda p: msgspec.structs.replace(p, attributes={}), drawn.payloads
)


@st.composite
def items(draw: st.DrawFn) -> Item:
    sequence_id = draw(ids)
    return Item(
        sequence_id,
        draw(payloads),
        draw(drawn.attempts),
        draw(ms),
        draw(drawn.priorities),
        draw(st.just(0) | ms),
        draw(st.just(0) | drawn.attempts),
        draw(st.just(0) | drawn.lease_durations),
        draw(st.none() | drawn.errors),
        draw(st.none() | drawn.tokens(st.just(sequence_id))),
        draw(maybe),
        draw(st.booleans()),
    )


many = {"principal": drawn.names, "proof": maybe}
groups = st.lists(items(), max_size=3).map(tuple)
named = st.lists(ids, max_size=4).map(tuple)
DRAWN: dict[type, st.SearchStrategy[Any]] = {
    kinds.EpochStarted: st.builds(
        kinds.EpochStarted,
        epoch=ids,
        node=drawn.names,
        origin=drawn.names,
        rules=st.builds(Rules, pending_high=st.integers(0, 9)),
    ),
    kinds.Enqueued: st.builds(
        kinds.Enqueued,
        sequence_id=ids,
        payload=payloads,
        priority=drawn.priorities,
        available_at=st.just(0) | ms,
        max_attempts=st.just(0) | drawn.attempts,
        lease_ms=st.just(0) | drawn.lease_durations,
        **by,
    ),
    kinds.Granted: st.builds(
        kinds.Granted,
        expires_at=ms,
        lease_ms=drawn.lease_durations,
        request_id=maybe,
        proof=maybe,
        **owned,
    ),
    kinds.Renewed: st.builds(
        kinds.Renewed, beats=st.lists(st.tuples(ids, fences, ms), max_size=4).map(tuple), **many
    ),
    kinds.Completed: st.builds(kinds.Completed, proof=maybe, **owned),
    kinds.Failed: st.builds(
        kinds.Failed,
        error=drawn.errors,
        disposition=drawn.names,
        available_at=st.just(0) | ms,
        details=details,
        proof=maybe,
        **owned,
    ),
    kinds.Expired: st.builds(kinds.Expired, error=drawn.errors, disposition=drawn.names, **owned),
    kinds.Released: st.builds(kinds.Released, proof=maybe, **owned),
    kinds.Drained: st.builds(kinds.Drained, items=groups, **many),
    kinds.Restored: st.builds(kinds.Restored, items=groups, fence_floor=fences, **many),
    kinds.Redriven: st.builds(
        kinds.Redriven, sequence_ids=named, extra_attempts=drawn.attempts, **many
    ),
    kinds.Purged: st.builds(kinds.Purged, sequence_ids=named, **many),
    kinds.Refused: st.builds(
        kinds.Refused,
        verb=drawn.names,
        code=drawn.names,
        times=ids,
        sequence_id=st.none() | ids,
        attempt=st.none() | drawn.attempts,
        lease_id=st.none() | drawn.lease_ids,
        **by,
    ),
    kinds.Followed: st.builds(
        kinds.Followed, reader=drawn.names, position=ids, sequence_lag=ids, lag_ms=ids
    ),
}


def envelope_of(made: list[Record], *, epoch: int = 1, node: str = "n") -> Envelope:
    depths = [0] * len(made)
    return Envelope(1, "s", epoch, node, 1, len(made), 1000, "", made, depths, depths)


def test_every_kind_of_record_is_drawn() -> None:
    assert set(DRAWN) == set(Record.__args__)


@given(st.lists(st.one_of([*DRAWN.values()]), min_size=1, max_size=8))
def test_rows_lead_back_to_the_very_records(made: list[Record]) -> None:
    made = [_of(record) for record in made]
    assert records_of(batch_of([envelope_of(made)])) == made


def _of(record: Record) -> Record:
    """An EpochStarted names the epoch and the node of its own envelope."""
    if not isinstance(record, kinds.EpochStarted):
        return record
    return msgspec.structs.replace(record, epoch=1, node="n")


@pytest.mark.parametrize("kind", list(DRAWN))
@given(data=st.data())
def test_a_batch_of_one_kind_is_read_back(kind: type, data: st.DataObject) -> None:
    made = data.draw(st.lists(DRAWN[kind].map(_of), min_size=1, max_size=4))
    assert records_of(batch_of([envelope_of(made)])) == made


def test_an_unknown_event_type_is_refused_by_name() -> None:
    batch = batch_of([envelope_of([kinds.Completed(1, 1, "l", 2)])])
    at = batch.schema.get_field_index("event_type")
    unknown = batch.set_column(at, "event_type", pa.array(["Levitated"]))
    with pytest.raises(InvalidArgument, match="'Levitated' is not known here: upgrade"):
        records_of(unknown)
