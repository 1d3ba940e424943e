"""What rows leave behind that are left out of a fold: memories, and whether a shard is paused."""

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
import pyarrow as pa

from omnirelay.lease.evolve import remember_lease, remember_request
from omnirelay.lease.options import Rules
from omnirelay.lease.records import Item
from omnirelay.lease.state import QueueState
from omnirelay.pipeline.replay_rows import COMPLETED, ENQUEUED, GRANTED, Numbers, Rows

Restores = Sequence[tuple[int, tuple[Item, ...]]]
"""Which row restored what."""


class Past:
    """The three memories, filled from columns by the core's own hand and in its order."""

    def __init__(self, state: QueueState) -> None:
        """Takes the memories of `state`, and leaves it with blank ones."""
        self._memory = QueueState()
        self._memory.rules = state.rules
        self._swap(state)

    def give_back(self, state: QueueState) -> None:
        self._swap(state)

    def _swap(self, state: QueueState) -> None:
        memory = self._memory
        memory.requests, state.requests = state.requests, memory.requests
        memory.lease_requests, state.lease_requests = state.lease_requests, memory.lease_requests
        memory.finished, state.finished = state.finished, memory.finished

    def add(self, rows: Rows, restores: Restores) -> None:
        """A memory's bounds are rules, and those begin with an epoch."""
        lease_ids, request_ids, lease_request_ids = rows.texts(
            ("lease_id", "request_id", "lease_request_id")
        )
        ended = _Named(rows, COMPLETED, lease_ids)
        asked = _Named(rows, ENQUEUED, request_ids)
        served = _Named(rows, GRANTED, lease_request_ids)
        rules, restored, memory = dict(rows.epochs), dict(restores), self._memory
        for start, end in pairwise(sorted({0, rows.count, *rules, *restored})):
            memory.rules = rules.get(start, memory.rules)
            memory.at = int(rows.at[start])
            for item in restored.get(start, ()):
                if item.payload.request_id is not None:
                    remember_request(memory, item.payload.request_id, item.sequence_id)
            most = memory.rules.finished_entries
            for at, sequence_id, lease_id in ended.within(start, end):
                memory.finished.put(sequence_id, lease_id, at, most)
            for memory.at, sequence_id, request_id in asked.within(start, end):
                remember_request(memory, request_id, sequence_id)
            for memory.at, sequence_id, request_id in served.within(start, end):
                remember_lease(memory, request_id, sequence_id)


class _Named:
    """Rows of one kind that have a text."""

    def __init__(self, rows: Rows, kind: int, texts: pa.Array) -> None:
        is_named = texts.is_valid().to_numpy(zero_copy_only=False)
        # A completion without a lease id is remembered all the same.
        self._row = np.flatnonzero((rows.kind == kind) & (is_named | (kind == COMPLETED)))
        self._at = rows.at[self._row]
        self._item = rows.item[self._row]
        self._texts = texts.take(pa.array(self._row))

    def within(self, start: int, end: int) -> Iterator[tuple[int, int, str]]:
        """Time, item and text of those from row `start` up to `end`."""
        low, high = np.searchsorted(self._row, (start, end)).tolist()
        at, item = self._at[low:high].tolist(), self._item[low:high].tolist()
        return zip(at, item, self._texts[low:high].to_pylist(), strict=True)


def paused_after(rows: Rows, pending: Numbers, *, rules: Rules, was_paused: bool) -> bool:
    """`watch_level` after every row, of which `pending` tells the depth; `rules` are those before
    the rows. Needs a low mark below the high one: then a level that stays tells nothing new."""
    stops = [(0, rules), *rows.epochs, (rows.count, rules)]
    for (start, in_force), (end, _) in pairwise(stops):
        if not in_force.pending_high:
            was_paused = False
            continue
        depth = pending[start:end]
        high = np.flatnonzero(depth >= in_force.pending_high)
        low = np.flatnonzero(depth <= in_force.pending_low)
        if len(high) or len(low):
            was_paused = (high[-1] if len(high) else -1) > (low[-1] if len(low) else -1)
    return bool(was_paused)
