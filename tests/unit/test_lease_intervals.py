"""A set of integers kept as ranges behaves like a set of integers."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from omnirelay.lease.intervals import Intervals

numbers = st.integers(0, 40)
additions = st.tuples(st.just("add"), numbers, st.integers(-1, 6))
removals = st.tuples(st.just("discard"), numbers, st.just(0))


@given(st.lists(additions | removals, max_size=40))
def test_it_holds_what_was_added_and_not_discarded(steps: list[tuple[str, int, int]]) -> None:
    ranges, plain = Intervals(), set[int]()
    for verb, low, width in steps:
        if verb == "add":
            ranges.add(low, low + width)
            plain |= set(range(low, low + width + 1))
        else:
            ranges.discard(low)
            plain.discard(low)
    assert [number for number in range(-2, 60) if number in ranges] == sorted(plain)
    assert len(ranges) == len(plain)
    assert bool(ranges) == bool(plain)


@given(st.lists(st.tuples(numbers, st.integers(0, 6)), max_size=20))
def test_its_ranges_are_sorted_apart_and_make_it_again(drawn: list[tuple[int, int]]) -> None:
    ranges = Intervals((low, low + width) for low, width in drawn)
    listed = list(ranges)
    assert all(low <= high for low, high in listed)
    assert all(a[1] + 1 < b[0] for a, b in pairwise(listed))
    assert list(Intervals(listed)) == listed


def test_a_million_ids_in_a_row_are_one_range() -> None:
    ranges = Intervals()
    ranges.add(1, 1_000_000)
    ranges.discard(500_000)
    assert list(ranges) == [(1, 499_999), (500_001, 1_000_000)]
    ranges.add(500_000)
    assert list(ranges) == [(1, 1_000_000)]


def test_an_empty_range_adds_nothing() -> None:
    ranges = Intervals()
    ranges.add(5, 4)
    assert not ranges
    assert 5 not in ranges
