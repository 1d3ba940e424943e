"""Which item each request id made, so that a repeat gets the same answer. Bounded by count.

Clients number their requests (`name.17`, `name.18`), and a batch of them makes items in the same
order. What follows on without a gap is kept as one run: a hundred of them cost little more than
one, here and in a snapshot.
"""

from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from omnirelay.model import limits


class Run(NamedTuple):
    """As it is stored: ids of one time, the items they made counting up from `value`. Without a
    number it is the one id `name`; else `name.number` and those that follow it."""

    at: int
    name: str
    number: int | None
    value: int
    length: int

    def ids(self) -> list[str]:
        if self.number is None:
            return [self.name]
        return [f"{self.name}.{n}" for n in range(self.number, self.number + self.length)]


class _Kept:
    """A run whose front may be forgotten and whose end may grow."""

    __slots__ = ("at", "length", "name", "number", "value")

    def __init__(self, at: int, name: str, number: int | None, value: int, length: int) -> None:
        self.at = at
        self.name = name
        self.number = number
        self.value = value
        self.length = length

    def goes_on_with(self, run: Run) -> bool:
        return (
            self.number is not None
            and run.number == self.number + self.length
            and run.value == self.value + self.length
            and run.at == self.at
            and run.name == self.name
        )


class _Line:
    """The runs of one name, by number. What is forgotten mostly stands in front: it is cut off when
    it is half of the line, instead of moving all the others each time."""

    __slots__ = ("_gone", "_numbers", "_runs")

    def __init__(self) -> None:
        self._numbers: list[int] = []
        self._runs: list[_Kept] = []
        self._gone = 0

    def __len__(self) -> int:
        return len(self._runs) - self._gone

    def _place(self, number: int) -> int:
        """Of the last run that begins there or before; less than `_gone` if there is none."""
        return bisect_right(self._numbers, number, self._gone) - 1

    def find(self, number: int) -> _Kept | None:
        at = self._place(number)
        if at < self._gone or number >= self._numbers[at] + self._runs[at].length:
            return None
        return self._runs[at]

    def is_free(self, number: int, count: int) -> bool:
        at = self._place(number + count - 1)
        return at < self._gone or self._numbers[at] + self._runs[at].length <= number

    def add(self, number: int, run: _Kept) -> None:
        at = self._place(number) + 1
        self._numbers.insert(at, number)
        self._runs.insert(at, run)

    def drop(self, number: int) -> None:
        at = self._place(number)
        if at > self._gone:
            del self._numbers[at], self._runs[at]
            return
        self._gone += 1
        if 2 * self._gone > len(self._runs):
            del self._numbers[: self._gone], self._runs[: self._gone]
            self._gone = 0

    def move(self, number: int, by: int) -> None:
        """The run that begins there begins later."""
        self._numbers[self._place(number)] += by


class Requests:
    __slots__ = ("_changed", "_count", "_lines", "_order", "_others")

    def __init__(self) -> None:
        self._order: deque[_Kept] = deque()
        self._lines: dict[str, _Line] = {}
        self._others: dict[str, _Kept] = {}
        """Ids without a number."""
        self._changed: dict[str, int] = {}
        """Items that came again from elsewhere, under an id that is known; hardly ever any."""
        self._count = 0

    def __len__(self) -> int:
        return self._count

    @property
    def runs(self) -> int:
        return len(self._order)

    def get(self, key: str) -> int | None:
        found = self._find(key, _parted(key))
        return None if found is None else self._value_at(*found, key)

    def recall(self, key: str, since: int) -> int | None:
        """The item, if the id was first put at `since` or later."""
        found = self._find(key, _parted(key))
        if found is None or found[0].at < since:
            return None
        return self._value_at(*found, key)

    def are_new(self, keys: Sequence[str]) -> bool:
        """All of them, and they follow one another; False if it would have to be found out one by
        one."""
        found = _as_run(keys)
        if found is None:
            return False
        line = self._lines.get(found[0])
        return line is None or line.is_free(found[1], len(keys))

    def put(self, key: str, value: int, at: int, most: int) -> None:
        named = _parted(key)
        if self._find(key, named) is not None:
            self._changed[key] = value  # it gets no younger by it
            return
        name, number = named or (key, None)
        self._add(Run(at, name, number, value, 1))
        self._forget(self._count - most)

    def put_all(self, keys: Sequence[str], value: int, at: int, most: int) -> None:
        """`put` for each, with values that count up from `value`."""
        found = _as_run(keys)
        if found is not None:
            self.put_run(Run(at, *found, value, len(keys)), most)
            return
        for index, key in enumerate(keys):
            self.put(key, value + index, at, most)

    def put_run(self, run: Run, most: int) -> None:
        """`put` for each of its ids."""
        line = self._lines.get(run.name)
        if run.number is None or not (line is None or line.is_free(run.number, run.length)):
            for index, key in enumerate(run.ids()):
                self.put(key, run.value + index, run.at, most)
            return
        self._add(run)
        self._forget(self._count - most)

    def forget_before(self, at: int) -> None:
        while self._order and self._order[0].at < at:
            self._forget(self._order[0].length)

    def items(self) -> list[tuple[int, str, int]]:
        """Time, id and item, oldest first; the list is the caller's."""
        return each_request(self.stored())

    def stored(self) -> list[Run]:
        """All of them, oldest first, in as few runs as can be; the list is the caller's."""
        runs = [
            Run(kept.at, kept.name, kept.number, kept.value, kept.length) for kept in self._order
        ]
        if not self._changed:
            return runs
        joined = Requests()
        for run in runs:
            for index, key in enumerate(run.ids()):
                joined.put(key, self._value_at(run, index, key), run.at, self._count)
        return joined.stored()

    # -- inside ---------------------------------------------------------------------------------

    def _find(self, key: str, named: tuple[str, int] | None) -> tuple[_Kept, int] | None:
        """The run it is in, and its place there; `named` is its name and number, if it has them."""
        if named is None:
            kept = self._others.get(key)
            return None if kept is None else (kept, 0)
        line = self._lines.get(named[0])
        kept = None if line is None else line.find(named[1])
        if kept is None:
            return None
        assert kept.number is not None
        return kept, named[1] - kept.number

    def _value_at(self, run: "Run | _Kept", place: int, key: str) -> int:
        if self._changed and key in self._changed:
            return self._changed[key]
        return run.value + place

    def _add(self, run: Run) -> None:
        """None of its ids is known."""
        self._count += run.length
        last = self._order[-1] if self._order else None
        if last is not None and last.goes_on_with(run):
            last.length += run.length
            return
        kept = _Kept(*run)
        self._order.append(kept)
        if kept.number is None:
            self._others[kept.name] = kept
            return
        line = self._lines.get(kept.name)
        if line is None:
            line = self._lines[kept.name] = _Line()
        line.add(kept.number, kept)

    def _forget(self, count: int) -> None:
        while count > 0:
            kept = self._order[0]
            gone = min(count, kept.length)
            if self._changed:
                whole = Run(kept.at, kept.name, kept.number, kept.value, gone)
                for key in whole.ids():
                    self._changed.pop(key, None)
            if gone == kept.length:
                self._order.popleft()
                self._drop(kept)
            else:
                assert kept.number is not None
                self._lines[kept.name].move(kept.number, gone)
                kept.number += gone
                kept.value += gone
                kept.length -= gone
            self._count -= gone
            count -= gone

    def _drop(self, kept: _Kept) -> None:
        if kept.number is None:
            del self._others[kept.name]
            return
        line = self._lines[kept.name]
        line.drop(kept.number)
        if not len(line):
            del self._lines[kept.name]


def each_request(runs: Iterable[Run]) -> list[tuple[int, str, int]]:
    """Time, id and item of every one."""
    return [(run.at, key, run.value + index) for run in runs for index, key in enumerate(run.ids())]


def _parted(key: str) -> tuple[str, int] | None:
    """`name.17` as its two parts, if putting them together gives the same text again."""
    name, dot, digits = key.rpartition(".")
    if not dot or not 0 < len(digits) <= limits.REQUEST_DIGITS_MAX or not digits.isdecimal():
        return None
    number = int(digits)
    return (name, number) if str(number) == digits else None


def _as_run(keys: Sequence[str]) -> tuple[str, int] | None:
    """Name and first number, if each follows the one before it."""
    first = _parted(keys[0])
    if first is None or keys[-1] != f"{first[0]}.{first[1] + len(keys) - 1}":
        return None
    name, number = first
    expected = [f"{name}.{n}" for n in range(number, number + len(keys))]
    return first if list(keys) == expected else None
