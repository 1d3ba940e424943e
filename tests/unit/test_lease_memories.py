"""What a queue remembers answers repeats for a while, forgets the oldest, and can be stored."""

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnirelay.lease.finished import Finished, each_finished
from omnirelay.lease.requests import Requests, each_request
from omnirelay.lease.served import Served, each_served

Entry = tuple[int, str, int]
names = st.sampled_from(["a", "c", "c.1"])
numbers = st.integers(0, 12)
odd_ids = st.sampled_from(["a", "c", "c.", ".1", "c.01", "c.1.", "c.\u0661", "c.-1", "c.1e3", "."])
ids = st.one_of(odd_ids, st.builds("{}.{}".format, names, numbers))


@st.composite
def batches(draw: st.DrawFn) -> list[str]:
    """Ids that follow one another, or any."""
    if draw(st.booleans()):
        return draw(st.lists(ids, min_size=1, max_size=4, unique=True))
    name, first = draw(names), draw(numbers)
    return [f"{name}.{first + index}" for index in range(draw(st.integers(1, 5)))]


class PlainRequests:
    """A list cut at its front."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []

    def put(self, key: str, value: int, at: int, most: int) -> None:
        for place, (known_at, known, _) in enumerate(self.entries):
            if known == key:
                self.entries[place] = (known_at, key, value)
                return
        self.entries = [*self.entries, (at, key, value)][-most:]

    def forget_before(self, at: int) -> None:
        while self.entries and self.entries[0][0] < at:
            del self.entries[0]


steps = st.lists(st.tuples(batches(), st.integers(0, 3), st.booleans()), max_size=25)


@given(steps, st.integers(1, 9), st.integers(1, 6))
def test_request_ids_are_remembered_as_in_a_list_cut_at_its_front(
    drawn: list[tuple[list[str], int, bool]], most: int, window: int
) -> None:
    memory, single, plain = Requests(), Requests(), PlainRequests()
    now, value = 0, 0
    for keys, ms, at_once in drawn:
        now += ms
        for one in (memory, single, plain):
            one.forget_before(now - window)
        if memory.are_new(keys):
            assert all(memory.get(key) is None for key in keys)
        if at_once:
            memory.put_all(keys, value, now, most)
        for index, key in enumerate(keys):
            if not at_once:
                memory.put(key, value + index, now, most)
            single.put(key, value + index, now, most)
            plain.put(key, value + index, now, most)
        value += len(keys)
        assert memory.items() == plain.entries
        assert len(memory) == len(plain.entries)
        assert memory.stored() == single.stored(), "how they came does not show"
        for at, key, found in plain.entries:
            assert memory.get(key) == memory.recall(key, at) == found
            assert memory.recall(key, at + 1) is None
        assert_stored_whole(memory)


def assert_stored_whole(memory: Requests) -> None:
    again = Requests()
    for run in memory.stored():
        again.put_run(run, 1000)
    assert again.stored() == memory.stored()
    assert each_request(again.stored()) == memory.items()


@given(odd_ids, odd_ids)
def test_ids_that_only_look_numbered_are_not_mixed_up(one: str, other: str) -> None:
    memory = Requests()
    memory.put(one, 1, 0, 9)
    assert memory.get(other) == (1 if one == other else None)


def test_a_batch_of_numbered_ids_is_one_run() -> None:
    memory = Requests()
    keys = [f"client-7.{number}" for number in range(95, 195)]
    assert memory.are_new(keys)
    memory.put_all(keys, 1000, at=5, most=500)
    assert not memory.are_new(keys[-1:])
    assert not memory.are_new([keys[0], keys[2]]), "they do not follow one another"
    memory.put_all([f"client-7.{number}" for number in range(195, 200)], 1100, at=5, most=500)
    assert (memory.runs, len(memory)) == (1, 105)
    assert memory.get("client-7.199") == 1104
    assert memory.get("client-7.200") is None


def test_whoever_asks_for_years_under_one_name_is_forgotten_from_the_front() -> None:
    memory = Requests()
    for number in range(5000):
        memory.put(f"c.{number}", 3 * number, at=number, most=100)
        assert memory.get(f"c.{number}") == 3 * number
    assert [key for _, key, _ in memory.items()] == [f"c.{number}" for number in range(4900, 5000)]
    assert memory.get("c.4899") is None
    memory.forget_before(10_000)
    assert (len(memory), memory.runs, memory.items()) == (0, 0, [])


def test_a_repeat_does_not_make_an_id_younger() -> None:
    memory = Requests()
    memory.put("r", 7, at=100, most=10)
    memory.put("r", 8, at=200, most=10)
    assert memory.get("r") == 8
    assert memory.recall("r", since=101) is None


# -- leases -------------------------------------------------------------------------------------

asked = st.tuples(
    st.sampled_from("pqrs"), st.lists(st.integers(1, 30), min_size=1, max_size=5, unique=True)
)


def spans_of(given: Iterable[int]) -> int:
    found = list(given)
    return sum(not index or id_ != found[index - 1] + 1 for index, id_ in enumerate(found))


@given(st.lists(st.tuples(asked, st.integers(0, 3)), max_size=25), st.integers(1, 6))
def test_lease_requests_are_remembered_as_in_a_list_cut_at_its_front(
    drawn: list[tuple[tuple[str, list[int]], int]], most: int
) -> None:
    memory = Served()
    plain: list[tuple[int, str, list[int]]] = []
    now = 0
    for (request_id, given_ids), ms in drawn:
        now += ms
        memory.forget_before(now - 4)
        plain = [entry for entry in plain if entry[0] >= now - 4]
        memory.add(request_id, given_ids, now, most)
        known = [entry for entry in plain if entry[1] == request_id]
        if known:
            known[0][2].extend(given_ids)
        else:
            plain.append((now, request_id, list(given_ids)))
        while len(plain) > 1 and sum(spans_of(entry[2]) for entry in plain) > most:
            del plain[0]
        assert memory.items() == plain
        assert len(memory) == sum(spans_of(entry[2]) for entry in plain)
        for at, key, found in plain:
            assert memory.recall(key, at) == found
            assert memory.recall(key, at + 1) is None
        again = Served()
        for request in memory.stored():
            again.put(request, 1000)
        assert each_served(again.stored()) == plain


@given(st.lists(st.lists(st.integers(1, 9), min_size=1, max_size=6), max_size=6), st.integers(1, 6))
def test_a_request_that_is_served_one_by_one_is_remembered_as_if_at_once(
    drawn: list[list[int]], most: int
) -> None:
    at_once, single = Served(), Served()
    for number, given_ids in enumerate(drawn):
        at_once.add(f"r{number}", given_ids, number, most)
        for one in given_ids:
            single.add(f"r{number}", (one,), number, most)
        assert at_once.stored() == single.stored()


def test_a_large_lease_request_takes_no_more_room_than_a_small_one() -> None:
    memory = Served()
    for number in range(50):
        memory.add(f"r{number}", range(1000 * number, 1000 * number + 1000), at=number, most=20)
    assert len(memory) == 20
    assert memory.recall("r30", 0) == list(range(30_000, 31_000))
    assert memory.recall("r29", 0) is None


# -- completions --------------------------------------------------------------------------------


@given(
    st.lists(st.tuples(st.integers(1, 400), st.integers(0, 2), st.booleans()), max_size=12),
    st.sampled_from([1, 7, 300, 5000]),
)
def test_completions_are_remembered_as_in_a_list_cut_at_its_front(
    drawn: list[tuple[int, int, bool]], most: int
) -> None:
    memory, single = Finished(), Finished()
    plain: list[tuple[int, int, str]] = []
    now, last = 0, 0
    for count, ms, at_once in drawn:
        now += ms
        items = list(range(last + count, last, -1))  # in any order
        leases = [f"lease-{item}" for item in items]
        last += count
        if at_once:
            memory.put_all(items, leases, now, most)
        for item, lease in zip(items, leases, strict=True):
            if not at_once:
                memory.put(item, lease, now, most)
            single.put(item, lease, now, most)
            plain.append((now, item, lease))
        plain = plain[-most:]
        assert memory.items() == plain
        assert len(memory) == len(plain)
        assert memory.stored() == single.stored(), "how they came does not show"
        for _, item, lease in plain[:3] + plain[-3:]:
            assert memory.get(item) == lease
        again = Finished()
        for block in memory.stored():
            again.put_all(block.sequence_ids, block.lease_ids, block.at, 10_000)
        assert each_finished(again.stored()) == plain
    assert memory.get(last + 1) is None


@pytest.mark.parametrize("at_once", [True, False])
def test_an_item_that_is_told_twice_is_remembered_once(at_once: bool) -> None:
    memory = Finished()
    memory.put_all([1, 2, 3], ["a", "b", "c"], at=1, most=9)
    if at_once:
        memory.put_all([4, 2], ["d", "x"], at=2, most=9)
    else:
        memory.put(4, "d", at=2, most=9)
        memory.put(2, "x", at=2, most=9)
    assert memory.items() == [(1, 1, "a"), (1, 2, "x"), (1, 3, "c"), (2, 4, "d")]
