"""What Hypothesis draws from when a test needs payloads, tokens or drained items.

Everything drawn is valid unless the name says otherwise, and survives the wire: text without
lone surrogates, times in whole milliseconds, numbers within `model/limits.py`.
"""

from hypothesis import strategies as st

from omnirelay.model import limits
from omnirelay.model.items import ErrorInfo, Payload, PendingItem, Token, dashed, to_time

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
names = text.filter(lambda drawn: bool(drawn) and not drawn.isspace())
blanks = st.sampled_from(["", " ", "\t\n", "\u2003"])
times = st.integers(0, 4_000_000_000_000).map(to_time)
"""From 1970 on; to the millisecond, as the shard's clock counts."""
lease_ids = st.integers(0, (1 << 128) - 1).map(lambda number: dashed(f"{number:032x}"))
sequence_ids = st.integers(1, limits.RESTORED_NUMBER_MAX)
attempts = st.integers(1, limits.ATTEMPTS_MAX)
priorities = st.integers(-limits.PRIORITY_ABS_MAX, limits.PRIORITY_ABS_MAX)
lease_durations = st.integers(limits.LEASE_MS_MIN, limits.LEASE_MS_MAX)
errors = st.builds(ErrorInfo, message=text, code=st.none() | names)

payloads = st.builds(
    Payload,
    resource_type=names,
    resource_id=names,
    partition_key=st.none() | text,
    payload_encoding=names,
    body=st.binary(max_size=64),
    attributes=st.none() | st.dictionaries(text, text, min_size=1, max_size=4),
    request_id=st.none() | text,
)


def tokens(
    sequence_ids: st.SearchStrategy[int] = sequence_ids,
) -> st.SearchStrategy[Token]:
    return st.builds(
        Token,
        sequence_id=sequence_ids,
        attempt=attempts,
        lease_id=lease_ids,
        fence=st.none() | st.integers(0, limits.RESTORED_NUMBER_MAX),
    )


@st.composite
def pending_items(
    draw: st.DrawFn,
    sequence_ids: st.SearchStrategy[int] = sequence_ids,
    origins: st.SearchStrategy[str | None] = st.none() | names,  # noqa: B008 - strategies are constants
) -> PendingItem:
    """Items of a file that any queue that has not used their ids must take."""
    sequence_id = draw(sequence_ids)
    return PendingItem(
        payload=draw(payloads),
        attempt=draw(attempts),
        enqueued_at=draw(times),
        sequence_id=sequence_id,
        last_error=draw(st.none() | errors),
        last_ownership_token=draw(st.none() | tokens(st.just(sequence_id))),
        dead_letter=draw(st.booleans()),
        available_at=draw(st.none() | times.filter(lambda time: time.timestamp() > 0)),
        priority=draw(priorities),
        max_attempts=draw(st.none() | attempts),
        lease_duration_ms=draw(st.none() | lease_durations),
        origin=draw(origins),
    )
