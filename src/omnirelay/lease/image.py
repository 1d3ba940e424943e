"""A state as parts that can be stored, and back. What is not in here is derived.

`freeze` copies references only, so it is quick even with a million items (they are immutable) and
the parts may be encoded later, in another thread, while the queue goes on.
"""

from collections.abc import Iterable, Iterator
from typing import TypeVar

import msgspec

from omnirelay.lease.finished import Block, each_finished
from omnirelay.lease.intervals import Intervals
from omnirelay.lease.options import Rules
from omnirelay.lease.records import RUNS_FORMAT, Item
from omnirelay.lease.requests import Run, each_request
from omnirelay.lease.served import Request, each_served
from omnirelay.lease.state import Dead, Held, QueueState
from omnirelay.model import limits

T = TypeVar("T")
Ranges = list[tuple[int, int]]
MEMORIES_PER_ITEM = 8


class Part(msgspec.Struct, rename="camel", omit_defaults=True, gc=False):
    """One slice of a state. Only the first carries the counters."""

    base: "Base | None" = None
    pending: list[Item] = []
    active: list[Held] = []
    dead: list[Dead] = []
    requests: list[tuple[int, str, int]] = []
    lease_requests: list[tuple[int, str, list[int]]] = []
    finished: list[tuple[int, int, str]] = []
    request_runs: list[Run] = []
    """From format 3 on, this and the next two in place of the three before."""
    lease_spans: list[Request] = []
    finished_blocks: list[Block] = []


class Base(msgspec.Struct, rename="camel", omit_defaults=True, gc=False):
    sequence: int
    at: int
    epoch: int
    node: str
    origin: str
    rules: Rules
    last_id: int
    fence_offset: int = 0
    paused: bool = False
    gaps: Ranges = []
    drained: Ranges = []
    adopted: dict[str, Ranges] = {}


def freeze(state: QueueState, part_items: int) -> Iterator[Part]:
    """Parts of the state as it is now. Take them all before the state changes again only for the
    first `next()`: everything mutable is copied there."""
    base = Base(
        sequence=state.sequence,
        at=state.at,
        epoch=state.epoch,
        node=state.node,
        origin=state.origin,
        rules=state.rules,
        last_id=state.last_id,
        fence_offset=state.fence_offset,
        paused=state.paused,
        gaps=list(state.gaps),
        drained=list(state.drained),
        adopted={origin: list(ids) for origin, ids in sorted(state.adopted.items())},
    )
    pending = list(state.pending.values())
    active = list(state.active.values())
    dead = list(state.dead.values())
    runs, served = state.requests.stored(), state.lease_requests.stored()
    blocks = state.finished.stored()
    yield Part(base=base)
    yield from (Part(pending=slice_) for slice_ in _slices(pending, part_items))
    yield from (Part(active=slice_) for slice_ in _slices(active, part_items))
    yield from (Part(dead=slice_) for slice_ in _slices(dead, part_items))
    # A memory is a few dozen bytes where an item has a body: as many as make a part worth its sync.
    memories = part_items * MEMORIES_PER_ITEM
    if base.rules.format >= RUNS_FORMAT:
        yield from (Part(request_runs=slice_) for slice_ in _slices(runs, memories))
        yield from (Part(lease_spans=slice_) for slice_ in _slices(served, memories))
        yield from (Part(finished_blocks=slice_) for slice_ in _shared_out(blocks, memories))
        return
    requests, leases, finished = each_request(runs), each_served(served), each_finished(blocks)
    yield from (Part(requests=slice_) for slice_ in _slices(requests, memories))
    yield from (Part(lease_requests=slice_) for slice_ in _slices(leases, memories))
    yield from (Part(finished=slice_) for slice_ in _slices(finished, memories))


def _slices(things: list[T], size: int) -> Iterator[list[T]]:
    for start in range(0, len(things), size):
        yield things[start : start + size]


def _shared_out(blocks: list[Block], size: int) -> Iterator[list[Block]]:
    """So many completions in each; a block that is too long is parted."""
    some: list[Block] = []
    room = size
    for at, sequence_ids, lease_ids in blocks:
        start = 0
        while start < len(sequence_ids):
            end = start + room
            some.append(Block(at, sequence_ids[start:end], lease_ids[start:end]))
            room -= len(some[-1].sequence_ids)
            start = end
            if not room:
                yield some
                some, room = [], size
    if some:
        yield some


def thaw(parts: Iterable[Part]) -> QueueState:
    state = QueueState()
    for part in parts:
        if part.base is not None:
            _thaw_base(state, part.base)
        state.pending.update((item.sequence_id, item) for item in part.pending)
        state.active.update((held.item.sequence_id, held) for held in part.active)
        state.dead.update((dead.item.sequence_id, dead) for dead in part.dead)
        # All that was remembered, even if today's rules are stricter: the next entry trims it, as
        # it would have without the snapshot.
        most = limits.DEDUPE_ENTRIES_MAX
        for at, request_id, sequence_id in part.requests:
            state.requests.put(request_id, sequence_id, at, most)
        for at, request_id, ids in part.lease_requests:
            state.lease_requests.add(request_id, ids, at, most)
        for at, sequence_id, lease_id in part.finished:
            state.finished.put(sequence_id, lease_id, at, most)
        for run in part.request_runs:
            state.requests.put_run(run, most)
        for request in part.lease_spans:
            state.lease_requests.put(request, most)
        for block in part.finished_blocks:
            state.finished.put_all(block.sequence_ids, block.lease_ids, block.at, most)
    state.rebuild_indexes()
    return state


def _thaw_base(state: QueueState, base: Base) -> None:
    state.sequence, state.at, state.epoch = base.sequence, base.at, base.epoch
    state.node, state.origin, state.rules = base.node, base.origin, base.rules
    state.last_id, state.fence_offset = base.last_id, base.fence_offset
    state.paused = base.paused
    state.gaps = Intervals(base.gaps)
    state.drained = Intervals(base.drained)
    state.adopted = {origin: Intervals(ids) for origin, ids in base.adopted.items()}


def facts(state: QueueState) -> bytes:
    """Everything that must be equal when two states are. Order of waiting is not a fact."""
    whole = list(freeze(state, max(1, len(state.pending) + len(state.finished) + 1)))
    for part in whole:
        part.pending.sort(key=lambda item: item.sequence_id)
        part.active.sort(key=lambda held: held.item.sequence_id)
    return msgspec.json.encode(whole)
