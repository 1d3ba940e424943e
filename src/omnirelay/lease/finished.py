"""Which lease completed an item, so that a repeated complete succeeds again. Bounded by count.

Hardly anybody ever asks, but every completion is put down: those of one turn share what they can.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from omnirelay.model import limits


class Block(NamedTuple):
    """As it is stored: completions of one time, in order."""

    at: int
    sequence_ids: list[int]
    lease_ids: list[str]


class _Kept:
    """The first `gone` are forgotten."""

    __slots__ = ("at", "gone", "lease_ids", "sequence_ids")

    def __init__(self, at: int, sequence_ids: list[int], lease_ids: list[str]) -> None:
        self.at = at
        self.sequence_ids = sequence_ids
        self.lease_ids = lease_ids
        self.gone = 0


class Finished:
    __slots__ = ("_blocks", "_order")

    def __init__(self) -> None:
        self._blocks: dict[int, _Kept] = {}
        self._order: deque[_Kept] = deque()

    def __len__(self) -> int:
        return len(self._blocks)

    def get(self, sequence_id: int) -> str | None:
        kept = self._blocks.get(sequence_id)
        return None if kept is None else kept.lease_ids[kept.sequence_ids.index(sequence_id)]

    def put(self, sequence_id: int, lease_id: str, at: int, most: int) -> None:
        known = self._blocks.get(sequence_id)
        if known is not None:
            known.lease_ids[known.sequence_ids.index(sequence_id)] = lease_id
            return  # it gets no younger by it
        last = self._order[-1] if self._order else None
        if last is None or last.at != at or len(last.sequence_ids) >= limits.FINISHED_BLOCK_MAX:
            last = _Kept(at, [], [])
            self._order.append(last)
        last.sequence_ids.append(sequence_id)
        last.lease_ids.append(lease_id)
        self._blocks[sequence_id] = last
        self._forget(len(self._blocks) - most)

    def put_all(
        self, sequence_ids: Sequence[int], lease_ids: Sequence[str], at: int, most: int
    ) -> None:
        """`put` for each, of different items."""
        if not self._blocks.keys().isdisjoint(sequence_ids):
            for sequence_id, lease_id in zip(sequence_ids, lease_ids, strict=True):
                self.put(sequence_id, lease_id, at, most)
            return
        for start in range(0, len(sequence_ids), limits.FINISHED_BLOCK_MAX):
            ids = list(sequence_ids[start : start + limits.FINISHED_BLOCK_MAX])
            kept = _Kept(at, ids, list(lease_ids[start : start + limits.FINISHED_BLOCK_MAX]))
            self._order.append(kept)
            self._blocks.update(dict.fromkeys(ids, kept))
        self._forget(len(self._blocks) - most)

    def items(self) -> list[tuple[int, int, str]]:
        """Time, item and lease, oldest first; the list is the caller's."""
        return each_finished(self.stored())

    def stored(self) -> list[Block]:
        """All of them, oldest first; the lists are the caller's. How they lie here does not show:
        a block has at most so many, and all of one time before the next is begun."""
        blocks: list[Block] = []
        for kept in self._order:
            ids, leases = kept.sequence_ids[kept.gone :], kept.lease_ids[kept.gone :]
            if blocks and blocks[-1].at == kept.at:
                blocks[-1].sequence_ids.extend(ids)
                blocks[-1].lease_ids.extend(leases)
            else:
                blocks.append(Block(kept.at, ids, leases))
        return blocks

    def _forget(self, count: int) -> None:
        while count > 0:
            kept = self._order[0]
            gone = kept.sequence_ids[kept.gone : kept.gone + count]
            for sequence_id in gone:
                del self._blocks[sequence_id]
            kept.gone += len(gone)
            count -= len(gone)
            if kept.gone == len(kept.sequence_ids):
                self._order.popleft()


def each_finished(blocks: Iterable[Block]) -> list[tuple[int, int, str]]:
    """Time, item and lease of every one."""
    return [
        (block.at, sequence_id, lease_id)
        for block in blocks
        for sequence_id, lease_id in zip(block.sequence_ids, block.lease_ids, strict=True)
    ]
