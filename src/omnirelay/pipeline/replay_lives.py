"""Items that come and go within a piece of history, and so leave no trace in the state after it.

Whatever is the least unusual about a life keeps it out of here: its rows are then folded by the
core, which says what is wrong with them.
"""

from dataclasses import dataclass

import numpy as np

from omnirelay.pipeline.replay_rows import (
    COMPLETED,
    DRAINED,
    ENQUEUED,
    EXPIRED,
    FAILED,
    GRANTED,
    PURGED,
    REDRIVEN,
    RELEASED,
    RENEWED,
    RESTORED,
    Flags,
    Numbers,
    Rows,
    any_of,
)

OWN = (ENQUEUED, GRANTED, COMPLETED, RELEASED, FAILED, EXPIRED)
"""Rows about one item."""
BULK = (DRAINED, RESTORED, REDRIVEN, PURGED)
_STEPS = {
    ENQUEUED: (GRANTED,),
    GRANTED: (RENEWED, RELEASED, FAILED, EXPIRED, COMPLETED),
    RENEWED: (RENEWED, RELEASED, FAILED, EXPIRED, COMPLETED),
    RELEASED: (GRANTED,),
    FAILED: (GRANTED,),
    EXPIRED: (GRANTED,),
}
_FOLLOWS = np.zeros((RENEWED + 1, RENEWED + 1), np.bool_)
for _before, _next in _STEPS.items():
    _FOLLOWS[_before, list(_next)] = True


@dataclass(frozen=True)
class Lives:
    """Of items that were enqueued and, at last, completed here."""

    item: Numbers
    """Ascending."""

    def hold(self, items: Numbers) -> Flags:
        """Which of `items` are of these."""
        if not len(self.item):
            return np.zeros(len(items), np.bool_)
        places = np.searchsorted(self.item, items)
        places[places == len(self.item)] = 0
        return self.item[places] == items  # type: ignore[no-any-return]

    def without(self, items: Numbers) -> "Lives":
        return Lives(self.item[~np.isin(self.item, items)])


def lives_of(rows: Rows, last_id: int, fence_offset: int) -> Lives:
    """`last_id` and `fence_offset` as they were before the rows."""
    own = np.flatnonzero(any_of(rows.kind, OWN))
    beats = np.flatnonzero(rows.kind[rows.listed.row] == RENEWED)
    row = np.concatenate([own, rows.listed.row[beats]])
    item = np.concatenate([rows.item[own], rows.listed.item[beats]])
    fence = np.concatenate([rows.fence[own], rows.listed.fence[beats]])
    if not len(row):
        return Lives(row)
    order = np.lexsort((row, item))
    row, item, fence = row[order], item[order], fence[order]
    kind = rows.kind[row]

    is_first = np.ones(len(row), np.bool_)
    is_first[1:] = item[1:] != item[:-1]
    is_sound = np.where(is_first, kind == ENQUEUED, _FOLLOWS[np.roll(kind, 1), kind])
    granted = kind == GRANTED
    offsets = _fence_offsets(rows, fence_offset)[row[granted]]
    is_sound[granted] &= fence[granted] == rows.first + row[granted] + offsets
    goes_on = (kind != ENQUEUED) & ~granted
    is_sound[goes_on] &= fence[goes_on] == np.roll(fence, 1)[goes_on]
    is_sound &= ~rows.is_dead[row]

    starts = np.flatnonzero(is_first)
    ends = np.append(starts[1:], len(row)) - 1
    is_whole = np.logical_and.reduceat(is_sound, starts) & (kind[ends] == COMPLETED)
    found = Lives(item[starts[is_whole]])
    bulk = any_of(rows.kind[rows.listed.row], BULK)
    return found.without(np.concatenate([rows.listed.item[bulk], _out_of_line(rows, last_id)]))


def _fence_offsets(rows: Rows, offset: int) -> Numbers:
    """After each row, as `evolve` has it: only a restore moves it."""
    offsets = np.full(rows.count, offset, np.int64)
    floors = rows.numbers("fence_floor")
    for row in np.flatnonzero(rows.kind == RESTORED).tolist():
        offset = max(offset, int(floors[row]) - rows.first - row)
        offsets[row:] = offset
    return offsets


def _out_of_line(rows: Rows, last_id: int) -> Numbers:
    """Enqueued items whose ids do not follow the one before, or may not, because a restore came
    between: the core has to look at those."""
    enqueued = np.flatnonzero(rows.kind == ENQUEUED)
    restores = np.cumsum(rows.kind == RESTORED)[enqueued]
    ids = rows.item[enqueued]
    follows = np.diff(ids, prepend=last_id) == 1
    follows &= np.diff(restores, prepend=0) == 0
    found: Numbers = ids[~follows]
    return found
