"""Waiting items in the order they are to be granted: higher priority first, FIFO inside.

A `Lane` is one resource type's line (or one busy key's). `Lanes` knows the first of all lanes.
Entries are removed at the front; one that left in another way (a swap, a replay) stays behind as a
stale entry and is dropped when it reaches the front. Who is stale is the caller's knowledge.
"""

from bisect import insort
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from heapq import heapify, heappop, heappush, heapreplace
from itertools import count, islice, pairwise
from operator import neg

from omnirelay.lease.records import Item

Entry = tuple[int, Item]
"""(ticket, item): tickets grow, so two lanes' fronts can be compared."""

Front = tuple[int, int, str, Item]
"""(-priority, ticket, type, item) of a lane's first entry; tickets differ, so items are never
compared."""
_Step = tuple[int, int, int, int, Item | None, Iterator[Entry] | None]
"""A place in the heap of fronts, or an item and the rest of its lane, in the order of granting."""
_STALE_MOST = 64


class Lane:
    __slots__ = ("buckets", "key", "priorities")

    def __init__(self, key: str = "") -> None:
        self.key = key
        self.buckets: dict[int, deque[Entry]] = {}
        self.priorities: list[int] = []  # ascending by -priority: the first is served first

    def push(self, entry: Entry, *, front: bool = False) -> None:
        priority = entry[1].priority
        bucket = self.buckets.get(priority)
        if bucket is None:
            bucket = self.buckets[priority] = deque()
            insort(self.priorities, priority, key=neg)
        if front:
            bucket.appendleft(entry)
        else:
            bucket.append(entry)

    def front(self) -> Entry | None:
        if not self.priorities:
            return None
        return self.buckets[self.priorities[0]][0]

    def pop(self) -> Entry | None:
        """Drop the front and return the next one."""
        priority = self.priorities[0]
        bucket = self.buckets[priority]
        bucket.popleft()
        if bucket:
            return bucket[0]
        del self.buckets[priority]
        del self.priorities[0]
        return self.front()

    def __iter__(self) -> Iterator[Entry]:
        for priority in self.priorities:
            yield from self.buckets[priority]

    def lines(self) -> Iterator[deque[Entry]]:
        """The line of each priority in use."""
        return iter(self.buckets.values())


class Lanes:
    """One lane a resource type, and a heap over their fronts."""

    __slots__ = ("_alive", "_fronts", "_lanes", "_pending", "_stale", "_ticket")

    def __init__(
        self, pending: dict[int, Item], alive: Callable[[Item], bool] | None = None
    ) -> None:
        """An entry is stale when its item is not pending any more, or not `alive`."""
        self._pending = pending
        self._alive = alive
        self._lanes: dict[str, Lane] = {}
        self._fronts: list[Front] = []
        """Every lane's present front is in here; the rest is stale and
        is dropped by `_settle` after each change, so the first one always stands."""
        self._stale = 0
        """Entries left behind in the lanes, at most."""
        self._ticket = 0

    def push(self, item: Item, *, front: bool = False) -> None:
        kind = item.payload.resource_type
        ticket = self._ticket = self._ticket + 1
        lane = self._lanes.get(kind)
        if lane is None:
            lane = self._lanes[kind] = Lane(kind)
        elif not front and (line := lane.buckets.get(item.priority)) is not None:
            line.append((ticket, item))
            return  # behind others of its priority: no front has changed
        # An item put back at the front must also win against the other lanes' fronts.
        entry = (-ticket if front else ticket, item)
        lane.push(entry, front=front)
        if lane.front() is entry:
            self._add_front((-item.priority, entry[0], kind, item))
            self._settle()

    def push_all(self, items: Iterable[Item]) -> None:
        """`push` for each, at the back."""
        kind: str | None = None
        priority, ticket = 0, self._ticket
        line: deque[Entry] = deque()
        for item in items:
            if item.payload.resource_type == kind and item.priority == priority:
                ticket += 1
                line.append((ticket, item))
                continue
            self._ticket = ticket
            self.push(item)
            ticket = self._ticket
            kind, priority = item.payload.resource_type, item.priority
            line = self._lanes[kind].buckets[priority]
        self._ticket = ticket

    def take_all(self, sequence_ids: Sequence[int]) -> list[Item]:
        """These are pending no more and leave their lanes, one after the other."""
        pending = self._pending
        taken = [pending[sequence_id] for sequence_id in sequence_ids]
        lane = self._lanes.get(taken[0].payload.resource_type)
        is_only = lane is not None and len(self._lanes) == 1
        line: deque[Entry] = lane.buckets[lane.priorities[0]] if lane and is_only else deque()
        for item, after in pairwise(taken):
            del pending[item.sequence_id]
            if len(line) > 1 and line[0][1] is item and line[1][1] is after:
                # Only the lane's front changes, to one that leaves too: `remove` of the last of
                # them says which it is in the end.
                line.popleft()
            else:
                self.remove(item)
                line = deque()
        del pending[taken[-1].sequence_id]
        self.remove(taken[-1])
        return taken

    def remove(self, item: Item) -> None:
        """`item` is not alive any more. Drops it if it stands in front; else it goes stale."""
        kind = item.payload.resource_type
        lane = self._lanes.get(kind)
        if lane is None:
            return
        line = lane.buckets[lane.priorities[0]]
        if line[0][1] is not item:
            self._stale += 1
            if self._stale > len(self._pending) + _STALE_MOST:
                self._sweep()
            return
        pending, alive = self._pending, self._alive
        entry = lane.pop()
        while entry is not None and (
            pending.get(entry[1].sequence_id) is not entry[1]
            or (alive is not None and not alive(entry[1]))
        ):  # `_stands`, spelled out: this is the path of every grant
            self._stale -= 1
            entry = lane.pop()
        if entry is None:
            del self._lanes[kind]
            self._settle()
            return
        front = (-entry[1].priority, entry[0], kind, entry[1])
        fronts = self._fronts
        if fronts[0][2] == kind:
            heapreplace(fronts, front)
        else:
            self._add_front(front)
        if len(fronts) > 1:
            self._settle()

    def first(self, kinds: tuple[str, ...] | None) -> Item | None:
        if kinds is None:
            return self._fronts[0][3] if self._fronts else None
        best: tuple[int, int] | None = None
        chosen: Item | None = None
        for kind in kinds:
            lane = self._lanes.get(kind)
            entry = lane.front() if lane is not None else None
            if entry is not None and (best is None or (-entry[1].priority, entry[0]) < best):
                best = (-entry[1].priority, entry[0])
                chosen = entry[1]
        return chosen

    def ahead(self, kinds: tuple[str, ...] | None, most: int) -> list[Item]:
        """The next items that `first` would give, each once the one before has been granted; at
        least one if there is any, and all of them only where they stand in one lane: to weigh lanes
        against each other is for `first`."""
        names = self._lanes if kinds is None else [kind for kind in kinds if kind in self._lanes]
        if len(names) != 1:
            item = self.first(kinds)
            return [] if item is None else [item]
        (name,) = names
        if self._alive is not None:
            standing = (item for _, item in self._lanes[name] if self._stands(item))
        else:
            get = self._pending.get
            lane = self._lanes[name]
            line = islice(lane.buckets[lane.priorities[0]], most)
            first = [item for _, item in line if get(item.sequence_id) is item]
            if len(first) == most:
                return first  # nearly always: none of them is stale, none of another priority
            standing = (item for _, item in lane if get(item.sequence_id) is item)
        return list(islice(standing, most))

    def fronts(self) -> Iterator[Item]:
        """The first item of every priority of every lane."""
        for lane in self._lanes.values():
            for line in lane.lines():
                item = next((item for _, item in line if self._stands(item)), None)
                if item is not None:
                    yield item

    def __iter__(self) -> Iterator[Item]:
        """In the order of granting, changing nothing: O(k log k) for the first k, however many
        lanes there are. The heap of fronts is walked from its top as far as it is needed; a lane
        joins when the walk meets it, and from then on only its own next entry matters."""
        fronts = self._fronts
        serial = count()
        frontier: list[_Step] = []
        joined: set[str] = set()

        def look_at(place: int) -> None:
            if place < len(fronts):
                heappush(frontier, (*fronts[place][:2], next(serial), place, None, None))

        def follow(lane: Iterator[Entry]) -> None:
            for ticket, item in lane:
                if self._stands(item):
                    heappush(frontier, (-item.priority, ticket, next(serial), 0, item, lane))
                    return

        look_at(0)
        while frontier:
            _, _, _, place, item, rest = heappop(frontier)
            if item is not None and rest is not None:
                yield item
                follow(rest)
                continue
            look_at(2 * place + 1)
            look_at(2 * place + 2)
            kind = fronts[place][2]
            if kind in self._lanes and kind not in joined:
                joined.add(kind)
                follow(iter(self._lanes[kind]))

    def _stands(self, item: Item) -> bool:
        if self._pending.get(item.sequence_id) is not item:
            return False
        return self._alive is None or self._alive(item)

    def _add_front(self, front: Front) -> None:
        """A lane that is not on top leaves its old fronts behind, so the heap is made anew before
        they outnumber the lanes: else it would grow with every grant by type."""
        fronts = self._fronts
        heappush(fronts, front)
        if len(fronts) > 2 * len(self._lanes) + _STALE_MOST:
            self._renew_fronts()

    def _renew_fronts(self) -> None:
        present = ((kind, lane.front()) for kind, lane in self._lanes.items())
        self._fronts[:] = [
            (-e[1].priority, e[0], kind, e[1]) for kind, e in present if e is not None
        ]
        heapify(self._fronts)

    def _sweep(self) -> None:
        """Drop every stale entry, before they outnumber the items: one that urgent items of its
        key pass again and again leaves an entry behind each time."""
        kept = [
            (kind, [e for e in lane if self._stands(e[1])]) for kind, lane in self._lanes.items()
        ]
        self._lanes = {kind: Lane(kind) for kind, entries in kept if entries}
        for kind, entries in kept:
            for entry in entries:
                self._lanes[kind].push(entry)
        self._stale = 0
        self._renew_fronts()

    def _settle(self) -> None:
        fronts = self._fronts
        while fronts:
            priority, ticket, kind, _ = fronts[0]
            lane = self._lanes.get(kind)
            entry = lane.front() if lane is not None else None
            if entry is not None and entry[0] == ticket and entry[1].priority == -priority:
                return
            heappop(fronts)
