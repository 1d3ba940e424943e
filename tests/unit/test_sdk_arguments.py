"""What a caller passes in is proved on the way in: cheaply if it is plain, by the codec if not."""

import pytest

from omnirelay.lease.commands import Drain, Enqueue
from omnirelay.model import limits
from omnirelay.model.errors import InvalidArgument, InvalidPayload
from omnirelay.model.items import Payload
from omnirelay.sdk.arguments import batches, checked_items, milliseconds, named, new_item, proved


def test_a_plain_item_is_taken_as_it_is() -> None:
    payload = Payload("table", "a", "key", body=b"x", request_id="r")
    assert new_item(payload, delay=0.5, priority=3).payload is payload


def test_an_item_with_attributes_is_a_copy_of_its_own() -> None:
    attributes = {"a": "b"}
    item = new_item(Payload("table", "a", attributes=attributes))
    assert item.payload.attributes == attributes
    assert item.payload.attributes is not attributes


def test_seconds_become_milliseconds() -> None:
    item = new_item(Payload("table", "a"), delay=1.5, lease_duration=0.25, max_attempts=2)
    assert (item.delay_ms, item.lease_duration_ms, item.max_attempts) == (1500, 250, 2)
    assert milliseconds("wait", 2) == 2000


@pytest.mark.parametrize("seconds", ["1", None, float("nan"), float("-inf"), b"1"])
def test_what_is_no_number_of_seconds_is_refused(seconds: float) -> None:
    with pytest.raises(InvalidArgument, match="wait is"):
        milliseconds("wait", seconds)


def test_a_refusal_names_the_field() -> None:
    with pytest.raises(InvalidArgument, match=r"drain: Expected `int`, got `str`.*max_items"):
        proved(Drain(max_items="all"))  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["", " \t", "x" * (limits.NAME_CHARS_MAX + 1), "a\udcff", 7])
def test_a_name_is_text_that_can_be_stored(name: str) -> None:
    with pytest.raises(InvalidArgument):
        named("peer_id", name)


def test_each_item_of_a_batch_is_judged_by_itself() -> None:
    checked = checked_items(
        [Payload("table", "a"), Payload("table", None), object()],  # type: ignore[list-item, arg-type]
        "w",
    )
    assert isinstance(checked[0], Enqueue)
    assert checked[0].peer_id == "w"
    assert isinstance(checked[1], InvalidPayload)
    assert isinstance(checked[2], InvalidPayload)


def test_batches_keep_their_order_and_their_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "BATCH_MAX", 3)
    monkeypatch.setattr(limits, "ENVELOPE_BYTES_MAX", 10)
    sizes = [1, 1, 1, 1, 9, 2, 10, 10, 0, 0]
    items = [new_item(Payload("table", str(n), body=bytes(s))) for n, s in enumerate(sizes)]
    found = batches(items)
    assert [[len(item.payload.body) for item in batch] for batch in found] == [
        [1, 1, 1],
        [1, 9],
        [2],
        [10],
        [10, 0, 0],
    ]
    assert [item for batch in found for item in batch] == items
    assert batches([]) == []
