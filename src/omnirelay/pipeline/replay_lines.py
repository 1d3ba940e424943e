"""Where items of one key wait for each other: whose turns a line that is still open depends on.

A key's line is empty again and again, and then nothing is left of it. Only those who have stood in
it since it was last empty decide who stands where in it now.
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnirelay.lease.options import SerializeBy
from omnirelay.lease.state import Key, QueueState, key_of
from omnirelay.pipeline.replay_rows import (
    COMPLETED,
    DRAINED,
    ENQUEUED,
    REDRIVEN,
    RESTORED,
    Flags,
    Numbers,
    Rows,
)

_KNOWN, _ENTERS, _LEAVES = range(3)
_NO_KEY = -1


def open_lines(rows: Rows, state: QueueState, serialize_by: SerializeBy) -> Numbers:
    """Items that stood, during the rows, in a line that is not empty after them. `state` is the one
    before the rows."""
    listed, kinds = rows.listed, rows.kind[rows.listed.row]
    known = _known(state, serialize_by)
    enqueued = np.flatnonzero(rows.kind == ENQUEUED)
    restored = np.flatnonzero(kinds == RESTORED)
    keys = _keys(rows, serialize_by, (enqueued, restored), [key for _, _, key in known])
    left = np.flatnonzero((rows.kind == COMPLETED) | rows.is_dead)
    turns = _Turns()
    turns.add(_ENTERS, rows.item[enqueued], enqueued, keys[: len(enqueued)])
    turns.add(_ENTERS, listed.item[restored], listed.row[restored], keys[len(enqueued) :])
    items, known_turns = (np.array([one[at] for one in known], np.int64) for at in (0, 1))
    before = np.full(len(known), -1)
    turns.add(known_turns, items, before, keys[len(enqueued) + len(restored) :])
    for kind, turn in ((REDRIVEN, _ENTERS), (DRAINED, _LEAVES)):
        turns.add(turn, listed.item[kinds == kind], listed.row[kinds == kind])
    turns.add(_LEAVES, rows.item[left], left)
    return turns.open(rows.count)


def _known(state: QueueState, serialize_by: SerializeBy) -> list[tuple[int, int, Key]]:
    """Items that were there before: those who stand in a line, and dead letters that may again."""
    there = [(one, _ENTERS, item) for one, item in state.pending.items()]
    there += [(one, _ENTERS, held.item) for one, held in state.active.items()]
    there += [(one, _KNOWN, dead.item) for one, dead in state.dead.items()]
    return [(one, turn, key_of(item, serialize_by)) for one, turn, item in there]


def _keys(
    rows: Rows, serialize_by: SerializeBy, where: tuple[Numbers, Numbers], known: list[Key]
) -> Numbers:
    """A number for each key: of the enqueued rows, of the restored items, of what was known."""
    names = ("resource_type", "resource_id", "partition_key")
    enqueued, restored = map(pa.array, where)
    own = [texts.take(enqueued) for texts in rows.texts(names)]
    listed = [texts.take(restored) for texts in rows.listed_texts(names)]
    first, second, partition = map(pa.concat_arrays, zip(own, listed, strict=True))
    if serialize_by == SerializeBy.PARTITION_KEY:
        has_own = partition.is_valid()
        first, second = pc.if_else(has_own, "", first), pc.if_else(has_own, partition, second)
    first = pa.concat_arrays([first, pa.array([key[0] for key in known], pa.string())])
    second = pa.concat_arrays([second, pa.array([key[1] for key in known], pa.string())])
    return _codes(first) * (len(second) + 1) + _codes(second)


def _codes(texts: pa.Array) -> Numbers:
    encoded = texts.dictionary_encode(null_encoding="encode")
    return encoded.indices.cast(pa.int64()).to_numpy()  # type: ignore[no-any-return]


class _Turns:
    """Who enters a line and who leaves one, row by row."""

    def __init__(self) -> None:
        self._added: list[tuple[Numbers, Numbers, Numbers, Numbers]] = []

    def add(
        self, turn: int | Numbers, item: Numbers, row: Numbers, key: Numbers | None = None
    ) -> None:
        """As many of `key` as there are items. Without it: the key that the item had last."""
        count = len(item)
        keys = np.full(count, _NO_KEY) if key is None else key[:count]
        self._added.append((item, row, np.broadcast_to(turn, count), keys))

    def open(self, end: int) -> Numbers:
        """Items that stood in a line that nobody had emptied at `end`."""
        item, row, turn, key = map(np.concatenate, zip(*self._added, strict=True))
        order = np.lexsort((row, item))
        item, row, turn, key = item[order], row[order], turn[order], key[order]
        has_key = np.where(key == _NO_KEY, 0, np.arange(len(key)))
        key = key[np.maximum.accumulate(has_key)]
        until = np.full(len(item), end)
        leaves = np.flatnonzero((turn[1:] == _LEAVES) & (item[1:] == item[:-1]))
        until[leaves] = row[leaves + 1]
        stays = np.flatnonzero(turn == _ENTERS)
        stays = stays[np.lexsort((row[stays], key[stays]))]
        is_open = _in_open_chain(row[stays], key[stays], until[stays], end)
        return item[stays][is_open]


def _in_open_chain(row: Numbers, key: Numbers, until: Numbers, end: int) -> Flags:
    """Stays in lines, by key and beginning: which overlap, by way of others, one without an end."""
    if not len(row):
        return np.zeros(0, np.bool_)
    is_new_key = np.ones(len(row), np.bool_)
    is_new_key[1:] = key[1:] != key[:-1]
    # Each key's rows are lifted above those of the keys before, so that one running maximum does.
    lift = np.cumsum(is_new_key) * (end + 2)
    latest = np.maximum.accumulate(until + lift)
    begins = is_new_key.copy()
    begins[1:] |= (row + lift)[1:] > latest[:-1]
    chain = np.cumsum(begins) - 1
    is_open = np.logical_or.reduceat(until == end, np.flatnonzero(begins))
    return is_open[chain]  # type: ignore[no-any-return]
