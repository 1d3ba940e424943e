"""What a queue remembers of the past so that a repeat gets the same answer. Bounded by count."""

from collections import deque
from collections.abc import Hashable, Sequence
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Memory(Generic[K, V]):
    """A dictionary that forgets its oldest entries.

    The order is kept in a deque beside the dictionary: taking the first key of a dictionary whose
    front was deleted over and over walks all the holes. Both hold the same entries, so that a
    snapshot, which wants them in order, need not look up a few hundred thousand of them.
    """

    __slots__ = ("_changed", "_entries", "_order")

    def __init__(self) -> None:
        self._entries: dict[K, tuple[int, K, V]] = {}
        self._order: deque[tuple[int, K, V]] = deque()
        self._changed: set[K] = set()
        """Keys of which the order still has an older value; hardly ever any."""

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: K) -> V | None:
        entry = self._entries.get(key)
        return None if entry is None else entry[2]

    def recall(self, key: K, since: int) -> V | None:
        """The value, if it was first put at `since` or later."""
        entry = self._entries.get(key)
        return None if entry is None or entry[0] < since else entry[2]

    def put(self, key: K, value: V, at: int, most: int) -> None:
        entry = self._entries.get(key)
        if entry is not None:
            self._entries[key] = (entry[0], key, value)
            self._changed.add(key)
            return
        self._entries[key] = entry = (at, key, value)
        self._order.append(entry)
        self._forget(len(self._order) - most)

    def put_all(self, pairs: Sequence[tuple[K, V]], at: int, most: int) -> None:
        """`put` for each."""
        fresh = {key: (at, key, value) for key, value in pairs}
        if len(fresh) < len(pairs) or not self._entries.keys().isdisjoint(fresh):
            for key, value in pairs:
                self.put(key, value, at, most)
            return
        self._entries.update(fresh)
        self._order.extend(fresh.values())
        self._forget(len(self._order) - most)

    def forget_before(self, at: int) -> None:
        while self._order and self._order[0][0] < at:
            self._forget(1)

    def _forget(self, count: int) -> None:
        if count <= 0:
            return
        entries, order = self._entries, self._order
        for _ in range(count):
            entries.pop(order.popleft()[1], None)
        if self._changed:
            self._changed &= entries.keys()

    def items(self) -> list[tuple[int, K, V]]:
        """Time, key and value, oldest first; the list is the caller's."""
        if not self._changed:
            return list(self._order)
        return [self._entries[key] for _, key, _ in self._order]
