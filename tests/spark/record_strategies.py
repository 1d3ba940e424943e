"""Records of every kind with every member, drawn by Hypothesis, and envelopes of them."""

from hypothesis import strategies as st

from omnirelay.journal.format import Envelope, seal, unseal
from omnirelay.lease.options import Rules, SerializeBy
from omnirelay.lease.records import (
    Completed,
    Drained,
    Enqueued,
    EpochStarted,
    Expired,
    Failed,
    Followed,
    Granted,
    Item,
    Purged,
    Record,
    Redriven,
    Refused,
    Released,
    Renewed,
    Restored,
)
from omnirelay.testing import strategies as drawn

ms = st.integers(1, 4_000_000_000_000)
ms_or_none = st.just(0) | ms
big = st.integers(0, (1 << 63) - 1)
texts = drawn.text
maybe = st.none() | texts
maps = st.none() | st.dictionaries(texts, texts, max_size=3)
proved = {"principal": texts, "proof": maybe}
named = {"peer_id": maybe, **proved}
owned = {
    "sequence_id": big,
    "attempt": st.integers(1, (1 << 31) - 1),
    "lease_id": drawn.lease_ids,
    "fence": big,
    "peer_id": maybe,
    "principal": texts,
}
payloads = drawn.payloads.flatmap(
    lambda payload: (
        st.just(payload)
        | maps.map(lambda attributes: type(payload)("t", "r", attributes=attributes))
    )
)
planned = {
    "priority": drawn.priorities,
    "available_at": ms_or_none,
    "max_attempts": st.just(0) | drawn.attempts,
    "lease_ms": st.just(0) | drawn.lease_durations,
}
items = st.builds(
    Item,
    sequence_id=big,
    payload=payloads,
    attempt=drawn.attempts,
    enqueued_at=ms_or_none,
    last_error=st.none() | drawn.errors,
    last_token=st.none() | drawn.tokens(),
    origin=maybe,
    dead=st.booleans(),
    **planned,
)
many = st.lists(items, max_size=3).map(tuple)
ids = st.lists(big, max_size=4).map(tuple)
rules = st.builds(
    Rules, serialize_by=st.sampled_from(SerializeBy), dedupe_window_ms=big, pending_high=big
)
BY_KIND: dict[type, st.SearchStrategy[Record]] = {
    EpochStarted: st.builds(EpochStarted, epoch=big, node=texts, origin=texts, rules=rules),
    Enqueued: st.builds(Enqueued, sequence_id=big, payload=payloads, **planned, **named),
    Granted: st.builds(
        Granted, expires_at=ms_or_none, lease_ms=big, request_id=maybe, proof=maybe, **owned
    ),
    Renewed: st.builds(
        Renewed,
        beats=st.lists(st.tuples(big, big, ms_or_none), max_size=3).map(tuple),
        **named,
    ),
    Completed: st.builds(Completed, proof=maybe, **owned),
    Failed: st.builds(
        Failed,
        error=drawn.errors,
        disposition=texts,
        available_at=ms_or_none,
        details=maps,
        proof=maybe,
        **owned,
    ),
    Expired: st.builds(Expired, error=drawn.errors, disposition=texts, **owned),
    Released: st.builds(Released, proof=maybe, **owned),
    Drained: st.builds(Drained, items=many, **named),
    Restored: st.builds(Restored, items=many, fence_floor=big, **named),
    Redriven: st.builds(Redriven, sequence_ids=ids, extra_attempts=drawn.attempts, **named),
    Purged: st.builds(Purged, sequence_ids=ids, **named),
    Refused: st.builds(
        Refused,
        verb=texts,
        code=texts,
        times=big,
        sequence_id=st.none() | big,
        attempt=st.none() | drawn.attempts,
        lease_id=st.none() | drawn.lease_ids,
        **named,
    ),
    Followed: st.builds(Followed, reader=texts, position=big, sequence_lag=big, lag_ms=big),
}
records = st.one_of(*BY_KIND.values())


@st.composite
def envelopes(draw: st.DrawFn) -> Envelope:
    held = draw(st.lists(records, min_size=1, max_size=6))
    depths = draw(st.lists(big, min_size=len(held), max_size=len(held)))
    first = draw(st.integers(1, 1 << 52))
    sealed = seal(
        held,
        (depths, depths[::-1]),
        head=(draw(drawn.names), draw(big), draw(texts)),
        first=first,
        time=draw(ms_or_none),
        prev=draw(st.sampled_from(["", "0" * 32])),
    )
    return unseal(sealed.body, shard=sealed.shard, at=first)
