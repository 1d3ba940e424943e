"""`omnirelay drain` and `restore`: no item is lost on the way into a file and back."""

from pathlib import Path

import msgspec
import pytest

import omnirelay
from omnirelay import Payload
from tests.cli.nodes import Running, losing_answers

pytestmark = pytest.mark.timeout(60)
DRAINED = ("--namespace", "drained")


def fill(node: Running, count: int, *, namespace: str = "drained") -> None:
    with omnirelay.connect_sync(node.urls["stream"], namespace=namespace, retry=0) as relay:
        relay.enqueue_many([Payload("table", f"t{n}", body=b"x") for n in range(count)])


def pending(node: Running, namespace: str = "drained") -> int:
    with omnirelay.connect_sync(node.urls["stream"], namespace=namespace, retry=0) as relay:
        return relay.stats().pending_count


def test_a_queue_goes_into_a_file_and_back_and_twice_changes_nothing(
    node: Running, tmp_path: Path
) -> None:
    fill(node, 25)
    file = tmp_path / "items.ndjson"
    drained = node("drain", "--out", str(file), "--page", "10", "--json", *DRAINED)
    assert drained.json() == {"drainedCount": 25, "remaining": 0, "file": str(file)}
    assert len(file.read_bytes().splitlines()) == 25
    assert pending(node) == 0
    first = node("restore", str(file), "--json", *DRAINED).json()
    assert first == {"restoredCount": 25, "skippedCount": 0}
    again = node("restore", str(file), *DRAINED)
    assert again.out.startswith("0 items restored, 25 were there already")
    assert pending(node) == 25


def test_a_drain_stops_where_it_is_told_and_goes_on_in_the_same_file(
    node: Running, tmp_path: Path
) -> None:
    file = tmp_path / "items.ndjson"
    words = ("drain", "--out", str(file), "--page", "4")
    assert "6 items in" in node(*words, "--max-items", "6", *DRAINED).out
    there = node(*words, *DRAINED)
    assert there.code == 1
    assert "is there already" in there.complaint
    assert pending(node) == 19, "a refused drain takes nothing"
    assert node(*words, "--append", *DRAINED).code == 0
    assert len(file.read_bytes().splitlines()) == 25
    elsewhere = node("restore", str(file), "--namespace", "elsewhere", "--json").json()
    assert elsewhere == {"restoredCount": 25, "skippedCount": 0}


def test_a_page_whose_answer_was_lost_is_taken_from_the_journal(
    node: Running, tmp_path: Path
) -> None:
    fill(node, 12)
    file = tmp_path / "items.ndjson"
    with losing_answers(node.urls["http"], b"/drained/drain ") as url:
        ended = node("drain", "--out", str(file), "--url", url, *DRAINED)
    assert ended.code == 0, ended.err
    assert pending(node) == 0
    lines = file.read_bytes().splitlines()
    names = {msgspec.json.decode(line)["payload"]["resourceId"] for line in lines}
    assert names >= {f"t{n}" for n in range(12)}
    assert node("restore", str(file), *DRAINED).code == 0
    assert pending(node) >= 12


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no such device here")
def test_a_page_that_cannot_be_written_goes_back(node: Running) -> None:
    before = pending(node)
    assert before > 0
    ended = node("drain", "--append", "--out", "/dev/full", *DRAINED)
    assert ended.code == 1
    assert "No space left" in ended.complaint
    assert "the last page went back" in ended.complaint
    assert pending(node) == before


def test_bad_lines_are_named_before_anything_is_sent(node: Running, tmp_path: Path) -> None:
    good = (
        b'{"payload":{"resourceType":"table","resourceId":"z"},"attempt":1,'
        b'"enqueuedAt":"2024-02-29T00:00:00Z","sequenceId":900,"origin":"there"}'
    )
    file = tmp_path / "bad.ndjson"
    blank = good.replace(b'"z"', b'" "')
    file.write_bytes(b"\n".join([good, b"{", b"", b"\xff", b'{"payload":1}', blank, good[:-20]]))
    before = pending(node)
    ended = node("restore", str(file), *DRAINED)
    assert ended.code == 1
    assert "5 bad lines, nothing was sent" in ended.complaint
    for number in (2, 4, 5, 6, 7):
        assert f"line {number}: " in ended.complaint
    assert pending(node) == before
    assert node("restore", str(tmp_path / "none"), *DRAINED).code == 1


def test_a_drain_without_a_place_for_it_takes_nothing(node: Running, tmp_path: Path) -> None:
    before = pending(node)
    assert node("drain", *DRAINED).code == 2
    assert node("drain", "--out", str(tmp_path / "no" / "such"), *DRAINED).code == 1
    unreachable = node("drain", "--out", str(tmp_path / "x"), "--url", "http://127.0.0.1:9")
    assert unreachable.code == 3
    assert pending(node) == before
