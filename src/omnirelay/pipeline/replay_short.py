"""The short way to a state: rows of items that came and went are left out, the core folds the rest.

Most of a history is over: enqueued, granted, perhaps tried again, completed. Such an item leaves
nothing in the state but counters and memories, which follow from columns. What else there is does
not depend on it: items are taken from where they stand by their own records, and who stands before
whom among the others follows from theirs. That holds for items of one key where those wait for each
other (`replay_lines`), and for delays as long as the clock does not go back: who ripens between two
rows stands before whoever comes with the second of them, whether or not anything lay between.

The result is the core's state in every fact (tests/pipeline/test_replay_short.py); whatever does
not look like it makes the shard be folded the whole way.
"""

import numpy as np

from omnirelay.lease.evolve import evolve
from omnirelay.lease.options import Rules, SerializeBy
from omnirelay.lease.records import Item, Record, Renewed, Restored
from omnirelay.lease.runs import evolve_all
from omnirelay.lease.state import QueueState
from omnirelay.model.errors import OmniRelayError
from omnirelay.pipeline.records import records_of
from omnirelay.pipeline.replay_lines import open_lines
from omnirelay.pipeline.replay_lives import BULK, OWN, Lives, lives_of
from omnirelay.pipeline.replay_past import Past, paused_after
from omnirelay.pipeline.replay_pieces import Piece
from omnirelay.pipeline.replay_rows import (
    COMPLETED,
    ENQUEUED,
    EPOCH,
    EXPIRED,
    FAILED,
    GRANTED,
    RELEASED,
    RENEWED,
    UNKNOWN,
    Flags,
    Numbers,
    Rows,
    Unfit,
    any_of,
)


class Astray(Exception):
    """The short way has found something wrong; the state is spoiled. The whole fold will say it."""


def fold_piece(state: QueueState, piece: Piece, *, remembers: bool) -> None:
    """Bring `state` to the end of the piece. Without `remembers` its three memories are left as
    they are, for those who do not look at them.

    Raises Unfit with the state untouched, Astray with the state spoiled."""
    rows = Rows(piece, state.sequence)
    if rows.count:
        _check_rules(rows, state.rules)
        Short(state, rows).fold(remembers=remembers)


def _check_rules(rows: Rows, rules: Rules) -> None:
    for row, new in [(0, rules), *rows.epochs]:
        if row and new.serialize_by != rules.serialize_by:
            # Lines are made anew in the middle, of all who wait then, left out or not.
            raise Unfit("what is serialised changes")
        rules = new
        if 0 < rules.pending_high <= rules.pending_low:
            # Then a level that stays may change the answer, and every record counts.
            raise Unfit("a level that would flicker")


class Short:
    """One piece on its way into the state."""

    def __init__(self, state: QueueState, rows: Rows) -> None:
        self.state = state
        self.rows = rows
        self._restores: list[tuple[int, tuple[Item, ...]]] = []
        self._moves: list[tuple[int, int, int]] = []
        """Of rows that move many items: the row, and how many became pending and active by it."""
        lives = lives_of(rows, state.last_id, state.fence_offset)
        serialize_by = (rows.epochs[0][1] if rows.kind[0] == EPOCH else state.rules).serialize_by
        if serialize_by != SerializeBy.NONE:
            lives = lives.without(open_lines(rows, state, serialize_by))
        self._is_left_out = _left_out(rows, lives)
        self._last_ids = _last_ids(rows, self._is_left_out)
        self._beats_left_out = _beats_left_out(rows, lives, self._is_left_out)

    def fold(self, *, remembers: bool) -> None:
        state, rows = self.state, self.rows
        rules, was_paused = state.rules, state.paused
        depths = len(state.pending), len(state.active)
        past = Past(state)
        try:
            for place, batch in rows.piece.rows(rows.first, ~self._is_left_out):
                self._apply(place, records_of(batch))
        except (AssertionError, LookupError, TypeError, ValueError, OmniRelayError) as error:
            raise Astray(f"after {state.sequence}: {error}") from error
        state.sequence, state.at = rows.first + rows.count - 1, int(rows.at[-1])
        state.last_id = max(state.last_id, int(self._last_ids[-1]))
        if state.delayed:
            state.ripen(state.at)
        pending = self._check_depths(*depths)
        state.paused = paused_after(rows, pending, rules=rules, was_paused=was_paused)
        if remembers:
            past.add(rows, self._restores)
        past.give_back(state)

    def _apply(self, place: Numbers, records: list[Record]) -> None:
        """Records of one time and without anything left out between them go in one run; those that
        move many items go alone, to be measured."""
        state, rows = self.state, self.rows
        alone = any_of(rows.kind[place], BULK)
        begins = np.ones(len(place), np.bool_)
        begins[1:] = (np.diff(place) != 1) | (np.diff(rows.at[place]) != 0)
        begins |= alone
        begins[1:] |= alone[:-1]
        starts = np.flatnonzero(begins)
        ends = np.append(starts[1:], len(place)).tolist()
        at, last_ids = rows.at[place].tolist(), self._last_ids[place].tolist()
        numbers = place.tolist()
        for start, end in zip(starts.tolist(), ends, strict=True):
            state.sequence = rows.first + numbers[start] - 1
            state.last_id = max(state.last_id, last_ids[start])
            if alone[start]:
                self._move(numbers[start], records[start], at[start])
            elif end - start == 1:
                evolve(state, self._trimmed(numbers[start], records[start]), at[start])
            else:
                run = map(self._trimmed, numbers[start:end], records[start:end])
                evolve_all(state, run, at[start])

    def _move(self, row: int, record: Record, at: int) -> None:
        state = self.state
        before = len(state.pending), len(state.active)
        evolve(state, record, at)
        self._moves.append((row, len(state.pending) - before[0], len(state.active) - before[1]))
        if isinstance(record, Restored):
            self._restores.append((row, record.items))

    def _trimmed(self, row: int, record: Record) -> Record:
        """Heartbeats of items that are left out are none."""
        left_out = self._beats_left_out.get(row)
        if left_out is None or not isinstance(record, Renewed):
            return record
        beats = tuple(beat for beat in record.beats if beat[0] not in left_out)
        return Renewed(beats, record.principal, record.proof, record.peer_id)

    def _check_depths(self, pending: int, active: int) -> Numbers:
        """The depth after each row, which every row has recorded; more than the whole fold looks
        at, so that it has the last word about all that it would have found."""
        rows, state = self.rows, self.state
        became_pending, became_active = _PENDING[rows.kind], _ACTIVE[rows.kind]
        became_pending[rows.is_dead] = 0
        for row, more_pending, more_active in self._moves:
            became_pending[row], became_active[row] = more_pending, more_active
        depth = pending + np.cumsum(became_pending), active + np.cumsum(became_active)
        recorded = rows.numbers("pending", null=-1), rows.numbers("active", null=-1)
        if not all(map(np.array_equal, depth, recorded)):
            raise Astray("another depth was recorded")
        if (depth[0][-1], depth[1][-1]) != (len(state.pending), len(state.active)):
            raise Astray("the rest is not what should be left")
        return depth[0]


def _changes(by_kind: dict[int, int]) -> Numbers:
    changes = np.zeros(UNKNOWN + 1, np.int64)
    for kind, change in by_kind.items():
        changes[kind] = change
    return changes


_PENDING = _changes({ENQUEUED: 1, GRANTED: -1, RELEASED: 1, FAILED: 1, EXPIRED: 1})
_ACTIVE = _changes({GRANTED: 1, COMPLETED: -1, RELEASED: -1, FAILED: -1, EXPIRED: -1})


def _left_out(rows: Rows, lives: Lives) -> Flags:
    left_out = any_of(rows.kind, OWN) & lives.hold(rows.item)
    kept_beats = rows.listed.row[~lives.hold(rows.listed.item)]
    is_beating = np.zeros(rows.count, np.bool_)
    is_beating[kept_beats] = True
    left_out |= (rows.kind == RENEWED) & ~is_beating
    return left_out


def _last_ids(rows: Rows, is_left_out: Flags) -> Numbers:
    """The last id, up to each row, that came with a row that is left out."""
    ids = np.where(is_left_out & (rows.kind == ENQUEUED), rows.item, 0)
    return np.maximum.accumulate(ids)


def _beats_left_out(rows: Rows, lives: Lives, is_left_out: Flags) -> dict[int, set[int]]:
    """By row, of heartbeats that are not left out as a whole."""
    row, item = rows.listed.row, rows.listed.item
    chosen = (rows.kind[row] == RENEWED) & ~is_left_out[row] & lives.hold(item)
    found: dict[int, set[int]] = {}
    for at, one in zip(row[chosen].tolist(), item[chosen].tolist(), strict=True):
        found.setdefault(at, set()).add(one)
    return found
