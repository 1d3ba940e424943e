"""What a node tells of its events becomes the rows that its journal has of them. No Spark here."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from omnirelay.journal.events import decode_event, encode_event, events_of
from omnirelay.journal.format import Envelope
from omnirelay.pipeline.decode import Part, batch_of
from omnirelay.pipeline.decode_events import batch_of_events
from omnirelay.pipeline.decode_types import SCHEMA
from omnirelay.pipeline.schema import EVENT
from tests.spark.record_strategies import envelopes

UNTOLD = {
    "lease_ms",
    "available_at",
    "priority",
    "max_attempts",
    "lease_request_id",
    "fence_floor",
    "extra_attempts",
    "rules",
    *(name for name in EVENT if name.startswith("envelope_")),
}
"""What no event carries."""


def told(row: dict[str, Any]) -> dict[str, Any]:
    """Any: columns of every type."""
    kept = {name: value for name, value in row.items() if name not in UNTOLD}
    kept["details"] = kept["details"] or None
    if row["event_type"] == "Refused":
        # Its record has a code and no words, and no token without all of its parts.
        kept["error_message"] = kept["lease_id"] = None
    return kept


@settings(max_examples=150, deadline=None)
@given(st.lists(envelopes(), min_size=1, max_size=4))
def test_columns_of_any_events_are_what_the_journal_has(held: list[Envelope]) -> None:
    wire = [encode_event(event) for envelope in held for event in events_of(envelope)]
    batch = batch_of_events([decode_event(one) for one in wire], list(EVENT))
    batch.validate(full=True)
    assert batch.schema.equals(SCHEMA)
    rows = batch.to_pylist()
    assert all(row[name] is None for row in rows for name in UNTOLD)
    assert list(map(told, rows)) == list(map(told, batch_of(held, Part()).to_pylist()))


def test_a_count_of_events_needs_no_column() -> None:
    assert batch_of_events([], ("sequence",)).num_rows == 0
    event = decode_event(
        b'{"sequenceNumber":1,"eventType":"Purged","timestamp":"2026-01-01T00:00:00Z","shard":"s",'
        b'"epoch":1,"node":"n","metadata":{"queue.pending":"0","queue.active":"0"}}'
    )
    assert batch_of_events([event, event], ()).num_rows == 2
