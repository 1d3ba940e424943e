"""The queue's state: facts, which a snapshot stores, and indexes, which follow from them.

Only `evolve` changes facts. `ripen` moves items whose delay has passed from one index to another;
no fact changes by it.
"""

import copy
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from heapq import heappop, heappush
from operator import attrgetter

import msgspec

from omnirelay.lease.deadlines import Deadlines
from omnirelay.lease.finished import Finished
from omnirelay.lease.intervals import Intervals
from omnirelay.lease.lanes import Lane, Lanes
from omnirelay.lease.options import Rules, SerializeBy
from omnirelay.lease.records import Item
from omnirelay.lease.requests import Requests
from omnirelay.lease.served import Served

Key = tuple[str, str]
_AVAILABLE_AT = attrgetter("available_at")


class Held(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, gc=False):
    """One active lease."""

    item: Item
    lease_id: str
    fence: int
    expires_at: int
    granted_at: int
    lease_ms: int
    principal: str
    peer_id: str | None = None
    request_id: str | None = None


class Dead(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, gc=False):
    item: Item
    at: int


def key_of(item: Item, serialize_by: SerializeBy) -> Key:
    """Items that share a key are never held at once. Without a partition key the resource is it."""
    payload = item.payload
    if serialize_by == SerializeBy.PARTITION_KEY and payload.partition_key is not None:
        return ("", payload.partition_key)
    return (payload.resource_type, payload.resource_id)


class QueueState:
    def __init__(self) -> None:
        # -- facts ----------------------------------------------------------------------------
        self.sequence = 0
        """Last journal sequence applied."""
        self.at = 0
        """Time of the last record applied."""
        self.epoch = 0
        self.node = ""
        self.origin = ""
        self.rules = Rules()
        self.last_id = 0
        self.gaps = Intervals()
        """Ids below `last_id` that no item here has ever had."""
        self.drained = Intervals()
        """Ids that left by drain and have not come back."""
        self.adopted: dict[str, Intervals] = {}
        """Ids that came by restore from other journals, by their origin."""
        self.fence_offset = 0
        self.pending: dict[int, Item] = {}
        self.active: dict[int, Held] = {}
        self.dead: OrderedDict[int, Dead] = OrderedDict()
        self.requests = Requests()
        self.lease_requests = Served()
        self.finished = Finished()
        """Lease id that completed an item, so that a repeated complete succeeds again."""
        self.paused = False
        # -- indexes --------------------------------------------------------------------------
        self.serialized = False
        self.lanes = Lanes(self.pending)
        self.delayed: dict[int, Item] = {}
        self.busy: dict[Key, Item] = {}
        """The one item of each key that is held or stands in a lane."""
        self.crowded: dict[Key, list[Item]] = {}
        """Further holders of a key, from a time when keys were not kept apart."""
        self.parked: dict[Key, Lane] = {}
        self.deadlines = Deadlines()
        self._delays: list[tuple[int, int]] = []

    # -- reading ------------------------------------------------------------------------------

    def is_ready(self, item: Item) -> bool:
        if self.pending.get(item.sequence_id) is not item:
            return False
        return not self.serialized or self.busy.get(self.key(item)) is item

    def key(self, item: Item) -> Key:
        return key_of(item, self.rules.serialize_by)

    def next_fence(self) -> int:
        return self.sequence + 1 + self.fence_offset

    def next_ripe_at(self) -> int | None:
        return self._delays[0][0] if self._delays else None

    def waiting(self) -> Iterator[Item]:
        """Every pending item, those that would be granted first in front. May repeat an item."""
        yield from self.lanes
        for lane in self.parked.values():
            for _, item in lane:
                if self.pending.get(item.sequence_id) is item:
                    yield item
        yield from self._delayed_in_order()

    def _delayed_in_order(self) -> Iterator[Item]:
        """The heap from its top down, in order, without touching it: O(k log k) for k items."""
        heap = self._delays
        frontier = [(heap[0], 0)] if heap else []
        while frontier:
            (_, sequence_id), at = heappop(frontier)
            item = self.delayed.get(sequence_id)
            if item is not None:
                yield item
            for child in (2 * at + 1, 2 * at + 2):
                if child < len(heap):
                    heappush(frontier, (heap[child], child))

    # -- indexes ------------------------------------------------------------------------------

    def ripen(self, now: int) -> None:
        delays = self._delays
        while delays and delays[0][0] <= now:
            at, sequence_id = heappop(delays)
            item = self.delayed.get(sequence_id)
            if item is not None and item.available_at == at:
                del self.delayed[sequence_id]
                self.line_up(item)

    def insert(self, item: Item, *, front: bool = False) -> None:
        """A pending item enters: it waits for its time, or lines up at once."""
        self.pending[item.sequence_id] = item
        if item.available_at > self.at:
            self.delayed[item.sequence_id] = item
            heappush(self._delays, (item.available_at, item.sequence_id))
        elif self.serialized:
            self.line_up(item, front=front)
        else:
            self.lanes.push(item, front=front)

    def insert_all(self, items: Sequence[Item]) -> None:
        """`insert` for each, at the back."""
        if self.serialized or any(map(_AVAILABLE_AT, items)):
            for item in items:
                self.insert(item)
            return
        self.pending.update({item.sequence_id: item for item in items})
        self.lanes.push_all(items)

    def line_up(self, item: Item, *, front: bool = False) -> None:
        if not self.serialized:
            self.lanes.push(item, front=front)
            return
        key = self.key(item)
        rival = self.busy.get(key)
        if rival is None:
            self.busy[key] = item
            self.lanes.push(item, front=front)
        elif rival.sequence_id in self.pending and rival.priority < item.priority:
            # The more urgent item takes the key's place in the line; the other waits behind it.
            self.busy[key] = item
            self._displace(key, rival)
            self.lanes.push(item, front=front)
        else:
            self._park(key, item, front=front)

    def _displace(self, key: Key, rival: Item) -> None:
        """`rival` leaves the line and waits with its key. It becomes another object, so that the
        entry it may leave behind in the line stays stale when its turn comes again."""
        self.lanes.remove(rival)
        self.pending[rival.sequence_id] = again = copy.copy(rival)
        self._park(key, again, front=True)

    def give_back(self, held: Item, item: Item) -> None:
        """A holder hands its item back untried: it stands in front again, before the others of
        its key too, unless one of those is more urgent."""
        key = self.key(item)
        if self.serialized and self.busy.get(key) is held:
            self._hand_on(key)
        self.insert(item, front=True)
        lane = self.parked.get(key)
        if lane is None or self.busy.get(key) is not item:
            return
        self._trim(key, lane)
        entry = lane.front()
        if entry is not None and entry[1].priority > item.priority:
            lane.pop()
            self._trim(key, lane)
            self.line_up(entry[1])

    def take_out(self, item: Item) -> None:
        """A pending item leaves, from wherever it stands."""
        sequence_id = item.sequence_id
        del self.pending[sequence_id]
        if self.delayed and self._undelay(sequence_id):
            return
        if not self.serialized:
            self.lanes.remove(item)
            return
        key = self.key(item)
        if self.busy.get(key) is item:
            self.lanes.remove(item)
            self.free(key)
        elif (lane := self.parked.get(key)) is not None:
            self._trim(key, lane)

    def _undelay(self, sequence_id: int) -> bool:
        if self.delayed.pop(sequence_id, None) is None:
            return False
        while self._delays and self._delays[0][1] not in self.delayed:
            heappop(self._delays)
        return True

    def hold(self, item: Item) -> None:
        """A pending item is granted: it leaves the line and its key is taken."""
        if not self.serialized:
            del self.pending[item.sequence_id]
            if self.delayed:
                self._undelay(item.sequence_id)
            self.lanes.remove(item)
            return
        key = self.key(item)
        rival = self.busy.get(key)
        if rival is item:
            del self.pending[item.sequence_id]
            self.lanes.remove(item)
            return
        # Only a replay comes here: it has not ripened what the writer had.
        self.take_out(item)
        self.busy[key] = item
        if rival is not None:
            self._displace(key, rival)

    def hold_all(self, sequence_ids: Sequence[int]) -> list[Item]:
        """`hold` for each of these."""
        if not self.serialized and not self.delayed:
            return self.lanes.take_all(sequence_ids)
        items = [self.pending[sequence_id] for sequence_id in sequence_ids]
        for item in items:
            self.hold(item)
        return items

    def free(self, key: Key) -> None:
        """A key's holder or candidate is gone: the next parked item of the key lines up, behind
        everybody else, so that a hot key takes turns with its neighbours."""
        is_held = self._hand_on(key)
        lane = self.parked.get(key)
        if is_held or lane is None:
            return
        self._trim(key, lane)
        entry = lane.front()
        if entry is not None:
            lane.pop()
            self._trim(key, lane)
            self.busy[key] = entry[1]
            self.lanes.push(entry[1])

    def _hand_on(self, key: Key) -> bool:
        """The key's holder is gone; True if it had another one, who keeps it."""
        self.busy.pop(key, None)
        others = self.crowded.pop(key, None) if self.crowded else None
        while others:
            item = others.pop()
            held = self.active.get(item.sequence_id)
            if held is not None and held.item is item:
                self.busy[key] = item
                self.crowded[key] = others
                return True
        return False

    def _park(self, key: Key, item: Item, *, front: bool = False) -> None:
        lane = self.parked.get(key)
        if lane is None:
            lane = self.parked[key] = Lane()
        lane.push((0, item), front=front)

    def _trim(self, key: Key, lane: Lane) -> None:
        entry = lane.front()
        busy = self.busy.get(key)
        while entry is not None and (
            self.pending.get(entry[1].sequence_id) is not entry[1] or entry[1] is busy
        ):
            lane.pop()
            entry = lane.front()
        if entry is None:
            self.parked.pop(key, None)

    def rebuild_indexes(self) -> None:
        """Derive every index from the facts, after a snapshot."""
        self.rebuild_deadlines()
        self.rebuild_lines()

    def rebuild_deadlines(self) -> None:
        self.deadlines = Deadlines()
        for sequence_id, held in self.active.items():
            self.deadlines.add(sequence_id, held.expires_at)

    def rebuild_lines(self) -> None:
        """Also when another rule of who excludes whom begins."""
        self.serialized = self.rules.serialize_by != SerializeBy.NONE
        self.lanes = Lanes(self.pending, self.is_ready if self.serialized else None)
        self.delayed, self._delays = {}, []
        self.busy, self.parked, self.crowded = {}, {}, {}
        for held in self.active.values():
            if self.serialized:
                key = self.key(held.item)
                if self.busy.setdefault(key, held.item) is not held.item:
                    self.crowded.setdefault(key, []).append(held.item)
        for item in list(self.pending.values()):
            self.insert(item)

    def watch_level(self) -> None:
        """Backpressure by level, not by edge: it can neither be missed nor stick."""
        rules = self.rules
        count = len(self.pending)
        if self.paused:
            self.paused = rules.pending_high > 0 and count > rules.pending_low
        else:
            self.paused = rules.pending_high > 0 and count >= rules.pending_high
