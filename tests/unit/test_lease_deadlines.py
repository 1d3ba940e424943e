"""The wheel of deadlines finds what is due, earliest first, and keeps nothing that is over."""

from hypothesis import given
from hypothesis import strategies as st

from omnirelay.lease.deadlines import TICK_SHIFT, Deadlines

TICK = 1 << TICK_SHIFT
ids = st.integers(1, 12)
moments = st.integers(0, 8 * TICK)


def wheel(due: dict[int, int]) -> Deadlines:
    deadlines = Deadlines()
    for sequence_id, at in due.items():
        deadlines.add(sequence_id, at)
    return deadlines


@given(st.lists(st.tuples(ids, st.none() | moments), max_size=40), moments)
def test_due_is_everything_whose_time_is_up_earliest_first(
    moves: list[tuple[int, int | None]], now: int
) -> None:
    deadlines, plain = Deadlines(), dict[int, int]()
    for sequence_id, at in moves:  # none: the lease is over
        if sequence_id in plain:
            deadlines.remove(sequence_id, plain.pop(sequence_id))
        if at is not None:
            plain[sequence_id] = at
            deadlines.add(sequence_id, at)
    expected = sorted((at, i) for i, at in plain.items() if at <= now)
    assert deadlines.due(now, 100) == [i for _, i in expected]
    assert deadlines.due(now, 100) == [i for _, i in expected], "looking changes nothing"


@given(st.dictionaries(ids, moments, min_size=1), moments, st.integers(1, 12))
def test_a_limit_never_passes_over_an_earlier_tick(
    due: dict[int, int], now: int, limit: int
) -> None:
    found = wheel(due).due(now, limit)
    late = sorted(at >> TICK_SHIFT for at in due.values() if at <= now)
    assert len(found) == min(limit, len(late))
    assert [due[i] >> TICK_SHIFT for i in found] == late[: len(found)]


@given(st.dictionaries(ids, moments, min_size=1))
def test_by_the_time_it_names_the_earliest_deadline_has_passed(due: dict[int, int]) -> None:
    deadlines, first = wheel(due), min(due.values())
    at = deadlines.next_at()
    assert at is not None
    assert first < at <= first + TICK
    assert deadlines.due(at, 1)


def test_without_leases_there_is_nothing_to_wake_for() -> None:
    deadlines = Deadlines()
    assert deadlines.next_at() is None
    deadlines.add(1, 100)
    deadlines.add(2, 100 + 9 * TICK)
    deadlines.remove(2, 100 + 9 * TICK)
    deadlines.remove(1, 100)
    assert deadlines.next_at() is None
    assert deadlines.due(1 << 40, 10) == []


def test_finished_leases_leave_nothing_behind() -> None:
    deadlines = Deadlines()
    for number in range(10_000):
        deadlines.add(number, number)
        deadlines.remove(number, number)
    assert deadlines._heap == []
    assert deadlines._ticks == {}
