"""What a queue remembers of the past so that a repeat gets the same answer. Bounded by count."""

from collections import deque
from collections.abc import Hashable, Iterator, Sequence
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Memory(Generic[K, V]):
    """A dictionary that forgets its oldest entries.

    The order is kept in a deque beside the dictionary: taking the first key of a dictionary whose
    front was deleted over and over walks all the holes.
    """

    __slots__ = ("_entries", "_order")

    def __init__(self) -> None:
        self._entries: dict[K, tuple[int, V]] = {}
        self._order: deque[tuple[int, K]] = deque()

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: K) -> V | None:
        entry = self._entries.get(key)
        return None if entry is None else entry[1]

    def recall(self, key: K, since: int) -> V | None:
        """The value, if it was first put at `since` or later."""
        entry = self._entries.get(key)
        return None if entry is None or entry[0] < since else entry[1]

    def put(self, key: K, value: V, at: int, most: int) -> None:
        entries, order = self._entries, self._order
        entry = entries.get(key)
        if entry is not None:
            entries[key] = (entry[0], value)
            return
        entries[key] = (at, value)
        order.append((at, key))
        while len(order) > most:
            entries.pop(order.popleft()[1], None)

    def put_all(self, pairs: Sequence[tuple[K, V]], at: int, most: int) -> None:
        """`put` for each."""
        entries, order = self._entries, self._order
        fresh = {key: (at, value) for key, value in pairs}
        if len(fresh) < len(pairs) or not entries.keys().isdisjoint(fresh):
            for key, value in pairs:
                self.put(key, value, at, most)
            return
        entries.update(fresh)
        order.extend([(at, key) for key in fresh])
        while len(order) > most:
            entries.pop(order.popleft()[1], None)

    def forget_before(self, at: int) -> None:
        order = self._order
        while order and order[0][0] < at:
            self._entries.pop(order.popleft()[1], None)

    def items(self) -> Iterator[tuple[int, K, V]]:
        """Oldest first."""
        for at, key in self._order:
            yield at, key, self._entries[key][1]
