"""Calls that wait: lease calls for work, enqueues for room. First come, first served."""

from collections import deque
from collections.abc import Callable, Iterator
from heapq import heapify, heappop, heappush
from itertools import count

from omnirelay.mesh.calls import Call, LeaseCall

Types = tuple[str, ...] | None
_LOOK_AFTER = 1024


class LeaseWaiters:
    """Grouped by what they wait for, so that a turn looks at groups, not at every waiter."""

    def __init__(self) -> None:
        self._groups: dict[Types, deque[tuple[int, LeaseCall]]] = {}
        self._deadlines: list[tuple[int, int, LeaseCall]] = []
        self._waiting: set[LeaseCall] = set()
        self._numbers = count()
        self._added = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, call: LeaseCall) -> None:
        number = next(self._numbers)
        self._groups.setdefault(call.resource_types, deque()).append((number, call))
        heappush(self._deadlines, (call.deadline, number, call))
        self._waiting.add(call)
        self._added += 1
        if self._added > max(_LOOK_AFTER, 2 * len(self._waiting) // 3):
            self._forget_withdrawn()

    def _forget_withdrawn(self) -> None:
        """Callers that come, wait and leave must not fill the hall behind one who stays. Looked for
        once in so many arrivals that it costs each of them next to nothing."""
        self._added = 0
        self._waiting = {call for call in self._waiting if not call.withdrawn}
        for types, group in list(self._groups.items()):
            kept = deque(entry for entry in group if entry[1] in self._waiting)
            if kept:
                self._groups[types] = kept
            else:
                del self._groups[types]
        self._deadlines = [entry for entry in self._deadlines if entry[2] in self._waiting]
        heapify(self._deadlines)

    def next_served(self, has_work: Callable[[Types], bool]) -> LeaseCall | None:
        """Take out the longest waiting call that there is work for."""
        best: tuple[int, Types] | None = None
        for types in list(self._groups):
            front = self._front(types)
            if front is not None and (best is None or front < best[0]) and has_work(types):
                best = (front, types)
        if best is None:
            return None
        _, call = self._groups[best[1]].popleft()
        self._waiting.discard(call)
        return call

    def _front(self, types: Types) -> int | None:
        group = self._groups[types]
        while group and (group[0][1] not in self._waiting or group[0][1].withdrawn):
            self._waiting.discard(group.popleft()[1])
        if group:
            return group[0][0]
        del self._groups[types]
        return None

    def overdue(self, now: int) -> Iterator[LeaseCall]:
        heap = self._deadlines
        while heap and (heap[0][0] <= now or heap[0][2] not in self._waiting):
            call = heappop(heap)[2]
            if call in self._waiting:
                self._waiting.discard(call)
                yield call

    def next_deadline(self) -> int | None:
        heap = self._deadlines
        while heap and heap[0][2] not in self._waiting:
            heappop(heap)  # it is gone: nobody need wake for it
        return heap[0][0] if heap else None

    def clear(self) -> list[LeaseCall]:
        waiting = [call for group in self._groups.values() for _, call in group]
        waiting = [call for call in waiting if call in self._waiting]
        self._groups.clear()
        self._deadlines.clear()
        self._waiting.clear()
        return waiting


class EnqueueWaiters:
    """Calls that met backpressure, in order. The first one's place in line is everybody's: nobody
    overtakes, so nobody starves."""

    def __init__(self) -> None:
        self._calls: deque[Call] = deque()

    def __len__(self) -> int:
        return len(self._calls)

    def add(self, call: Call) -> None:
        self._calls.append(call)

    def put_back(self, call: Call) -> None:
        self._calls.appendleft(call)

    def pop(self) -> Call | None:
        return self._calls.popleft() if self._calls else None

    def overdue(self, now: int) -> list[Call]:
        late = [call for call in self._calls if call.deadline is not None and call.deadline <= now]
        if late:
            self._calls = deque(call for call in self._calls if call not in late)
        return late

    def next_deadline(self) -> int | None:
        return min(
            (call.deadline for call in self._calls if call.deadline is not None), default=None
        )

    def clear(self) -> list[Call]:
        calls, self._calls = list(self._calls), deque()
        return calls
