"""The line of waiting items: higher priority first, first come first served inside, by type."""

from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnirelay.lease import commands, lanes
from omnirelay.lease.lanes import Lane, Lanes
from omnirelay.lease.options import QueueOptions, SerializeBy
from omnirelay.lease.records import Item
from omnirelay.model.items import Payload
from omnirelay.testing.folded import FoldedQueue, numbered_lease_id

kinds = st.sampled_from("abc")
pushes = st.tuples(st.just("push"), kinds, st.integers(-1, 1), st.booleans())
takes = st.tuples(st.just("take"), st.sampled_from([None, "a", "bc"]), st.just(0), st.booleans())


def item(number: int, kind: str = "a", priority: int = 0) -> Item:
    return Item(number, Payload(kind, "x"), 1, 0, priority)


class Line:
    """Lanes, and the same line as one list."""

    def __init__(self) -> None:
        self.alive: dict[int, Item] = {}
        self.lanes = Lanes(self.alive)
        self.plain: list[Item] = []

    def push(self, one: Item, *, front: bool = False) -> None:
        self.alive[one.sequence_id] = one
        self.lanes.push(one, front=front)
        self.plain.insert(0 if front else len(self.plain), one)

    def remove(self, one: Item) -> None:
        del self.alive[one.sequence_id]
        self.lanes.remove(one)
        self.plain.remove(one)

    def order(self) -> list[Item]:
        return sorted(self.plain, key=lambda one: -one.priority)

    def first(self, kinds: str | None) -> Item | None:
        fitting = (o for o in self.order() if kinds is None or o.payload.resource_type in kinds)
        return next(fitting, None)


@pytest.mark.parametrize("stale_most", [64, 1])
@given(steps=st.lists(pushes | takes, max_size=60))
def test_the_first_is_the_most_urgent_and_then_the_oldest(
    stale_most: int, steps: list[tuple[str, str | None, int, bool]]
) -> None:
    """However seldom, or often, what is left behind is swept out."""
    with patch.object(lanes, "_STALE_MOST", stale_most):
        play(Line(), steps)


def play(line: Line, steps: list[tuple[str, str | None, int, bool]]) -> None:
    for number, (verb, kind, priority, flag) in enumerate(steps):
        if verb == "push":
            line.push(item(number, kind or "a", priority), front=flag)
        elif flag and line.plain:
            line.remove(line.plain[number % len(line.plain)])  # from the middle, as a replay may
        elif (one := line.first(kind)) is not None:
            line.remove(one)
        for asked in (None, "a", "bc"):
            types = None if asked is None else tuple(asked)
            assert line.lanes.first(types) is line.first(asked)
        assert list(line.lanes) == line.order()


@given(st.lists(st.tuples(kinds, st.integers(-1, 1)), max_size=30))
def test_the_fronts_are_the_oldest_of_each_type_and_priority(drawn: list[tuple[str, int]]) -> None:
    line = Line()
    oldest: dict[tuple[str, int], int] = {}
    for number, (kind, priority) in enumerate(drawn):
        line.push(item(number, kind, priority))
        oldest.setdefault((kind, priority), number)
    assert {one.sequence_id for one in line.lanes.fronts()} == set(oldest.values())


def test_work_of_one_type_leaves_nothing_behind_while_another_type_stands_in_front() -> None:
    line = Line()
    line.push(item(0, "idle", priority=5))
    for number in range(1, 5000):
        line.push(item(number, "busy"))
        line.remove(item_of(line, "busy"))
    assert len(line.lanes._fronts) < 100


def test_handing_back_over_and_over_leaves_nothing_behind() -> None:
    line = Line()
    line.push(item(0))
    for number in range(1, 5000):
        line.push(item(number), front=True)
        line.remove(item_of(line, "a"))
    assert len(line.lanes._fronts) < 100


def item_of(line: Line, kind: str) -> Item:
    one = line.lanes.first((kind,))
    assert one is not None
    return one


def test_an_item_that_is_pending_but_may_not_go_is_passed_over() -> None:
    waiting = {number: item(number) for number in range(3)}
    barred = {1}
    line = Lanes(waiting, lambda one: one.sequence_id not in barred)
    for one in waiting.values():
        line.push(one)
    assert [one.sequence_id for one in line] == [0, 2]
    line.remove(waiting.pop(0))
    assert line.first(None) is waiting[2]


def test_a_lane_whose_last_entry_leaves_is_empty() -> None:
    lane = Lane()
    assert lane.front() is None
    lane.push((1, item(1, priority=3)))
    lane.push((2, item(2, priority=9)))
    assert [ticket for ticket, _ in lane] == [2, 1]
    lane.push((3, item(3, priority=9)))
    assert lane.pop() == (3, item(3, priority=9))
    assert lane.pop() == (1, item(1, priority=3))
    assert lane.pop() is None
    assert lane.front() is None


def test_urgent_items_of_a_resource_leave_nothing_behind_of_the_ones_they_pass() -> None:
    queue = FoldedQueue("A", QueueOptions(serialize_by=SerializeBy.RESOURCE))
    for name in ("first", "hot"):
        queue.submit(commands.Enqueue(payload=Payload("table", name)), 0)
    urgent = commands.Enqueue(payload=Payload("table", "hot"), priority=5)
    for number in range(500):
        queue.submit(urgent, 0)
        reply = queue.submit(commands.Grant(lease_id=numbered_lease_id(number)), 0)[1]
        assert isinstance(reply, tuple)
        queue.submit(commands.Complete(token=reply[0].token), 0)
    entries = [e for lane in queue.state.lanes._lanes.values() for e in lane]
    assert len(entries) < 100


# -- many at once ---------------------------------------------------------------------------------


one_kind = st.tuples(st.just("a"), st.just(0), st.booleans())
many_kinds = st.tuples(st.sampled_from("ab"), st.integers(0, 1), st.booleans())


@given(
    drawn=st.lists(one_kind, min_size=1, max_size=8) | st.lists(many_kinds, min_size=1, max_size=8),
    data=st.data(),
)
def test_whichever_leave_together_and_in_whatever_order_the_first_of_the_rest_stands(
    drawn: list[tuple[str, int, bool]], data: st.DataObject
) -> None:
    """A line that comes from a snapshot stands in another order than the one it was granted in."""
    line = Line()
    for number, (kind, priority, is_front) in enumerate(drawn):
        line.push(item(number, kind, priority), front=is_front)
    numbers = data.draw(st.permutations(range(len(drawn))))
    leaving = numbers[: data.draw(st.integers(1, len(numbers)))]
    assert [one.sequence_id for one in line.lanes.take_all(leaving)] == leaving
    line.plain = [one for one in line.plain if one.sequence_id not in leaving]
    for asked in (None, "a", "b"):
        types = None if asked is None else tuple(asked)
        assert line.lanes.first(types) is line.first(asked)


def test_of_a_batch_the_last_may_stand_behind_others() -> None:
    line = Line()
    for number in (1, 2, 3):
        line.push(item(number))
    line.lanes.take_all([1, 3])
    first = line.lanes.first(None)
    assert first is not None
    assert first.sequence_id == 2
