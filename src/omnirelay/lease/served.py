"""Which items each lease request was given, so that a repeat gets the same leases.

A request for a hundred leases is given items that mostly stand one after the other: they are kept
as spans, and it is spans that are counted, so that large requests take no more room than others.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from typing import NamedTuple


class Request(NamedTuple):
    """As it is stored: each span by its first item and how many there are."""

    at: int
    request_id: str
    spans: list[tuple[int, int]]


class _Kept:
    __slots__ = ("at", "request_id", "spans")

    def __init__(self, at: int, request_id: str) -> None:
        self.at = at
        self.request_id = request_id
        self.spans: list[range] = []

    def sequence_ids(self) -> list[int]:
        return [sequence_id for span in self.spans for sequence_id in span]


class Served:
    __slots__ = ("_kept", "_order", "_spans")

    def __init__(self) -> None:
        self._kept: dict[str, _Kept] = {}
        self._order: deque[_Kept] = deque()
        self._spans = 0

    def __len__(self) -> int:
        return self._spans

    def recall(self, request_id: str, since: int) -> list[int] | None:
        """The items, if the request was first served at `since` or later."""
        kept = self._kept.get(request_id)
        return None if kept is None or kept.at < since else kept.sequence_ids()

    def put(self, request: Request, most: int) -> None:
        """One that was stored."""
        for first, count in request.spans:
            self.add(request.request_id, range(first, first + count), request.at, most)

    def add(self, request_id: str, sequence_ids: Sequence[int], at: int, most: int) -> None:
        """These too. The oldest requests are forgotten when there are more than `most` spans."""
        kept = self._kept.get(request_id)
        if kept is None:
            kept = self._kept[request_id] = _Kept(at, request_id)
            self._order.append(kept)
        self._spans -= len(kept.spans)
        for span in _spans_of(sequence_ids):
            last = kept.spans[-1] if kept.spans else None
            if last is not None and last.stop == span.start:
                kept.spans[-1] = range(last.start, span.stop)
            else:
                kept.spans.append(span)
        self._spans += len(kept.spans)
        while self._spans > most and len(self._order) > 1:
            self._forget()

    def forget_before(self, at: int) -> None:
        while self._order and self._order[0].at < at:
            self._forget()

    def items(self) -> list[tuple[int, str, list[int]]]:
        """Time, request and items, oldest first; the lists are the caller's."""
        return each_served(self.stored())

    def stored(self) -> list[Request]:
        """All of them, oldest first; the lists are the caller's."""
        return [
            Request(kept.at, kept.request_id, [(span.start, len(span)) for span in kept.spans])
            for kept in self._order
        ]

    def _forget(self) -> None:
        kept = self._order.popleft()
        del self._kept[kept.request_id]
        self._spans -= len(kept.spans)


def _spans_of(sequence_ids: Sequence[int]) -> Iterable[range]:
    first, count = sequence_ids[0], len(sequence_ids)
    whole = range(first, first + count)
    if list(sequence_ids) == list(whole):
        return (whole,)
    return [range(sequence_id, sequence_id + 1) for sequence_id in sequence_ids]


def each_served(requests: Iterable[Request]) -> list[tuple[int, str, list[int]]]:
    """Time, request and items of every one."""
    return [(at, request_id, _each_of(spans)) for at, request_id, spans in requests]


def _each_of(spans: list[tuple[int, int]]) -> list[int]:
    return [sequence_id for first, count in spans for sequence_id in range(first, first + count)]
