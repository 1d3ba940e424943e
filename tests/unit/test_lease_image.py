"""A state put into parts and taken out again is the same state; restored files go the same way."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omnirelay.lease import answers, commands, image
from omnirelay.lease.decide import requeue_delay
from omnirelay.lease.deciding_moves import from_item, to_item
from omnirelay.lease.options import QueueOptions, SerializeBy
from omnirelay.lease.records import FORMAT, RUNS_FORMAT, Item
from omnirelay.lease.state import Held
from omnirelay.model.items import Payload, PendingItem
from omnirelay.testing import strategies
from omnirelay.testing.folded import FoldedQueue, every_fact, numbered_lease_id

files = st.lists(
    strategies.pending_items(sequence_ids=st.integers(1, 60), origins=st.just("elsewhere")),
    min_size=1,
    max_size=6,
    unique_by=lambda item: item.sequence_id,
)


def full_queue(
    items: list[PendingItem], options: QueueOptions, *, format_: int = FORMAT
) -> FoldedQueue:
    """Something of everything: adopted, held, failed, done, dead, drained, remembered."""
    queue = FoldedQueue("A", options, format_=format_)
    queue.submit(commands.Restore(items=tuple(items)), 1)
    for number in range(6):
        payload = Payload("table", f"t{number}", request_id=f"r.{number}")
        queue.submit(commands.Enqueue(payload=payload, delay_ms=500 * (number % 2)), 2)
    for number in range(5):
        grant = commands.Grant(lease_id=numbered_lease_id(number), request_id=f"q{number}")
        reply = queue.submit(grant, 3)[1]
        if not isinstance(reply, tuple):
            break
        token = reply[0].token
        if number == 1:
            queue.submit(commands.Complete(token=token), 4)
        elif number == 2:
            queue.submit(commands.Fail(token=token, reason="x", delay_ms=9), 4)
        elif number == 3:
            queue.submit(commands.Fail(token=token, requeue=False), 4)
    queue.submit(commands.Drain(max_items=1), 5)
    return queue


@settings(max_examples=30)  # a file is much to draw
@given(files, st.sampled_from(SerializeBy), st.integers(1, 9), st.integers(1, FORMAT))
def test_a_snapshot_gives_the_state_back(
    items: list[PendingItem], serialize_by: SerializeBy, part_items: int, format_: int
) -> None:
    queue = full_queue(items, QueueOptions(serialize_by=serialize_by), format_=format_)
    queue.through_snapshot(part_items)
    queue.refold()


def test_a_snapshot_is_of_the_moment_its_first_part_was_taken() -> None:
    queue = full_queue([], QueueOptions())
    before = every_fact(queue.state)
    parts = image.freeze(queue.state, 2)
    first = next(parts)
    queue.submit(commands.Enqueue(payload=Payload("table", "late", request_id="late")), 9)
    queue.submit(commands.Grant(lease_id=numbered_lease_id(99)), 9)
    queue.submit(commands.Drain(max_items=100, include_active=True), 9)
    assert every_fact(image.thaw([first, *parts])) == before


@pytest.mark.parametrize("format_", range(1, FORMAT + 1))
def test_no_part_holds_more_than_it_may(format_: int) -> None:
    queue = full_queue([], QueueOptions(), format_=format_)
    for number in range(100, 140):
        queue.state.finished.put(number, numbered_lease_id(number), number // 30, 1000)
    for part in image.freeze(queue.state, 2):
        assert max(len(part.pending), len(part.active), len(part.dead)) <= 2
        blocks = [len(block.sequence_ids) for block in part.finished_blocks]
        runs, spans = len(part.request_runs), len(part.lease_spans)
        memories = (len(part.requests), len(part.lease_requests), len(part.finished))
        assert max(*memories, runs, spans, sum(blocks)) <= 2 * image.MEMORIES_PER_ITEM
        assert any(memories) <= (format_ < RUNS_FORMAT)
        assert any((runs, spans, *blocks)) <= (format_ >= RUNS_FORMAT)
    queue.through_snapshot(2)


@settings(max_examples=30)
@given(files)
def test_a_file_comes_out_of_a_queue_as_it_went_in(items: list[PendingItem]) -> None:
    queue = FoldedQueue("B")
    queue.submit(commands.Restore(items=tuple(items)), 1)
    page = queue.submit(commands.Drain(max_items=1000, include_dead=True), 2)[1]
    assert isinstance(page, answers.DrainPage)
    order = {item.sequence_id: item for item in page.items}
    assert order == {item.sequence_id: item for item in items}


@given(strategies.pending_items(origins=strategies.names))
def test_a_drained_item_and_a_stored_item_say_the_same(item: PendingItem) -> None:
    stored = msgspec.json.decode(msgspec.json.encode(to_item(item)), type=Item)
    assert from_item(stored) == item


@pytest.mark.parametrize("jitter", [0.0, 0.2, 0.9])
@given(lease_id=strategies.lease_ids, attempt=st.integers(1, 100))
def test_backoff_grows_stays_within_its_cap_and_is_the_same_each_time(
    jitter: float, lease_id: str, attempt: int
) -> None:
    options = QueueOptions(requeue_delay_ms=100, requeue_delay_max_ms=5_000, requeue_jitter=jitter)
    held = Held(Item(1, Payload("t", "i"), attempt, 0), lease_id, 1, 1, 0, 1, "w")
    delay = requeue_delay(held, options)
    plain = min(100 * 2 ** (attempt - 1), 5_000)
    assert int(plain * (1 - jitter)) - 1 <= delay <= min(5_000, plain * (1 + jitter))
    assert delay == requeue_delay(held, options)
