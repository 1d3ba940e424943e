"""A set of integers kept as ranges: ids are handed out in runs, so a million cost a few numbers."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator


class Intervals:
    __slots__ = ("_highs", "_lows")

    def __init__(self, ranges: Iterable[tuple[int, int]] = ()) -> None:
        self._lows: list[int] = []
        self._highs: list[int] = []
        for low, high in ranges:
            self.add(low, high)

    def __contains__(self, number: int) -> bool:
        at = bisect_right(self._lows, number) - 1
        return at >= 0 and number <= self._highs[at]

    def __bool__(self) -> bool:
        return bool(self._lows)

    def __len__(self) -> int:
        return sum(high - low + 1 for low, high in self)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return zip(self._lows, self._highs, strict=True)

    def add(self, low: int, high: int | None = None) -> None:
        high = low if high is None else high
        if high < low:
            return
        # Ranges that overlap or touch low..high melt into one.
        start = bisect_left(self._highs, low - 1)
        end = bisect_right(self._lows, high + 1)
        if start < end:
            low = min(low, self._lows[start])
            high = max(high, self._highs[end - 1])
        self._lows[start:end] = [low]
        self._highs[start:end] = [high]

    def discard(self, number: int) -> None:
        at = bisect_right(self._lows, number) - 1
        if at < 0 or number > self._highs[at]:
            return
        low, high = self._lows[at], self._highs[at]
        parts = [(a, b) for a, b in ((low, number - 1), (number + 1, high)) if a <= b]
        self._lows[at : at + 1] = [a for a, _ in parts]
        self._highs[at : at + 1] = [b for _, b in parts]
