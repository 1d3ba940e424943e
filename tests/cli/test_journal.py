"""`omnirelay journal`: read and check a file, also while another process writes it."""

import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import msgspec
import pytest

import omnirelay
from omnirelay import KeepOptions, Payload
from omnirelay.journal.events import decode_event
from tests.cli.command import argv
from tests.cli.command import omnirelay as run


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A journal with a little of everything."""
    with omnirelay.connect_sync(f"sqlite:///{tmp_path}/leases.db") as relay:
        relay.enqueue_many([Payload("table", f"t{n}", body=b"x") for n in range(5)])
        relay.lease(peer_id="w-1").take().complete()
        relay.lease(peer_id="w-2").take().fail("broken", requeue=False)
        relay.drain(1)
    return tmp_path / "leases.db"


def url(file: Path) -> str:
    return f"sqlite:///{file}"


@contextmanager
def inside(file: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(file)) as db, db:
        yield db


# -- verify -------------------------------------------------------------------------------------


def test_a_whole_journal_is_called_whole(file: Path) -> None:
    ended = run("journal", "verify", url(file))
    assert ended.code == 0
    assert ended.out.startswith("whole: 11 events in ")
    assert "sequences 1 to 11, epoch 1; folded and compared" in ended.out
    assert ended.err == ""


def test_a_whole_journal_as_json(file: Path) -> None:
    found = run("journal", "verify", url(file), "--json").json()
    assert found["ok"] is True
    assert (found["firstSequence"], found["lastSequence"], found["events"]) == (1, 11, 11)
    assert found["replayed"] is True
    assert found["eventTypes"] == {
        "Completed": 1,
        "DrainSnapshot": 1,
        "Enqueue": 5,
        "EpochStarted": 1,
        "Failed": 1,
        "LeaseGranted": 2,
    }


def flip_a_byte(file: Path) -> int:
    """Returns the sequence of the damaged envelope."""
    with inside(file) as db:
        first, body = db.execute(
            "SELECT first, body FROM journal WHERE body LIKE '%Completed%'"
        ).fetchone()
        db.execute(
            "UPDATE journal SET body = ? WHERE first = ?",
            (body.replace("Completed", "Completee"), first),
        )
    return int(first)


def drop_one(file: Path) -> int:
    with inside(file) as db:
        (first,) = db.execute(
            "SELECT first FROM journal ORDER BY first LIMIT 1 OFFSET 2"
        ).fetchone()
        db.execute("DELETE FROM journal WHERE first = ?", (first,))
    return int(first)


def drop_the_last(file: Path) -> int:
    with inside(file) as db:
        (first,) = db.execute("SELECT max(first) FROM journal").fetchone()
        db.execute("DELETE FROM journal WHERE first = ?", (first,))
    return int(first)


@pytest.mark.parametrize("harm", [flip_a_byte, drop_one, drop_the_last])
def test_a_damaged_journal_is_refused_with_the_sequence(file: Path, harm: object) -> None:
    assert callable(harm)
    sequence = harm(file)
    ended = run("journal", "verify", url(file))
    assert ended.code == 1
    assert f"damaged at sequence {sequence}" in ended.complaint
    assert ended.out == ""
    as_json = run("journal", "verify", url(file), "--json")
    assert as_json.code == 1
    assert as_json.json()["ok"] is False
    assert as_json.json()["damagedAt"] == sequence


def test_a_journal_whose_beginning_was_pruned_is_checked_from_there(tmp_path: Path) -> None:
    file = tmp_path / "leases.db"
    keep = KeepOptions(snapshot_every=10, retain_ms=0)
    with omnirelay.connect_sync(url(file), keep=keep) as relay:
        for number in range(400):
            relay.enqueue("table", f"t{number}")
    found = run("journal", "verify", url(file), "--json").json()
    assert found["ok"] is True
    assert found.get("replayed", False) is False
    first = found["firstSequence"]
    assert isinstance(first, int)
    assert first > 1
    ended = run("journal", "tail", url(file), "--from", "1")
    assert ended.code == 1
    assert "was pruned" in ended.complaint
    assert run("journal", "tail", url(file)).out.lstrip().startswith(f"{first} ")


def test_a_journal_can_be_read_while_its_owner_writes(tmp_path: Path) -> None:
    file = tmp_path / "leases.db"
    with omnirelay.connect_sync(url(file)) as relay:
        relay.enqueue("table", "a")
        assert run("journal", "verify", url(file), "--json").json()["events"] == 2
        relay.enqueue("table", "b")
        assert len(run("journal", "tail", url(file)).out.splitlines()) == 3
        relay.lease().take().complete()
    assert run("journal", "verify", url(file)).code == 0


# -- tail ---------------------------------------------------------------------------------------


def test_tail_prints_one_event_a_line(file: Path) -> None:
    lines = run("journal", "tail", url(file)).out.splitlines()
    assert len(lines) == 11
    assert "EpochStarted" in lines[0]
    assert "table/t0" in lines[1]
    granted = next(line for line in lines if "LeaseGranted" in line)
    assert "item 1" in granted
    assert "fence 7" in granted
    assert "by w-1" in granted
    assert all(line == line.rstrip() for line in lines)


def test_tail_begins_where_it_is_told(file: Path) -> None:
    lines = run("journal", "tail", url(file), "--from", "10").out.splitlines()
    assert [int(line.split()[0]) for line in lines] == [10, 11]
    assert run("journal", "tail", url(file), "--from", "500").out == ""


def test_tail_as_json_prints_the_events_of_the_contract(file: Path) -> None:
    lines = run("journal", "tail", url(file), "--json").out.splitlines()
    events = [decode_event(line) for line in lines]
    assert [event.sequence_number for event in events] == list(range(1, 12))
    assert events[1].payload is not None
    assert events[1].payload.body == b"x"
    assert set(msgspec.json.decode(lines[0])) >= {"eventType", "sequenceNumber", "metadata"}


def test_tail_stops_before_a_damaged_envelope(file: Path) -> None:
    sequence = flip_a_byte(file)
    ended = run("journal", "tail", url(file))
    assert ended.code == 1
    assert f"damaged at sequence {sequence}" in ended.complaint
    assert len(ended.out.splitlines()) == sequence - 1


def test_tail_follows_another_process(tmp_path: Path) -> None:
    file = tmp_path / "leases.db"
    with omnirelay.connect_sync(url(file)) as relay:
        command = argv("journal", "tail", url(file), "--follow", "--json")
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as following:
            try:
                assert following.stdout is not None
                assert "EpochStarted" in following.stdout.readline()
                relay.enqueue("table", "later")
                assert "later" in following.stdout.readline()
                following.send_signal(2)
                assert following.wait(10) == 0
            finally:
                following.kill()


def test_a_reader_that_has_seen_enough_ends_the_command_quietly(file: Path) -> None:
    with omnirelay.connect_sync(url(file)) as relay:
        relay.enqueue_many([Payload("table", f"t{n}", body=bytes(500)) for n in range(1000)])
    command = argv("journal", "tail", url(file), "--json")
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as reading:
        assert reading.stdout is not None
        assert reading.stderr is not None
        reading.stdout.readline()
        reading.stdout.close()
        assert reading.stderr.read() == ""
        reading.wait(10)


# -- bad input ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("verb", "address"),
    [
        ("verify", "leases.db"),
        ("verify", ""),
        ("verify", "memory:"),
        ("verify", "http://h"),
        ("tail", "sqlite:///"),
        ("tail", "sqlite://h/x"),
    ],
)
def test_a_wrong_address_is_wrong_usage(verb: str, address: str) -> None:
    ended = run("journal", verb, address)
    assert ended.code == 2
    assert "sqlite:///" in ended.complaint
    assert ended.out == ""


@pytest.mark.parametrize("verb", ["verify", "tail"])
def test_a_file_that_is_not_there_is_unreachable_and_stays_away(verb: str, tmp_path: Path) -> None:
    ended = run("journal", verb, url(tmp_path / "no.db"))
    assert ended.code == 3
    assert "no.db: there is no such file" in ended.complaint
    assert list(tmp_path.iterdir()) == []
    assert run("journal", verb, url(tmp_path)).code == 3


def test_a_complaint_can_be_json(tmp_path: Path) -> None:
    ended = run("journal", "verify", url(tmp_path / "no.db"), "--json")
    said = msgspec.json.decode(ended.complaint)
    assert set(said) == {"message", "status", "code"}
    assert said["status"] == "UNAVAILABLE"
    assert ended.out == ""


def test_a_file_that_is_no_journal_is_refused_and_left_alone(tmp_path: Path) -> None:
    text = tmp_path / "text.db"
    text.write_text("not a database, by far " * 50)
    ended = run("journal", "verify", url(text))
    assert ended.code == 1
    assert "not a database" in ended.complaint
    foreign = tmp_path / "foreign.db"
    with inside(foreign) as db:
        db.execute("CREATE TABLE notes (x)")
    before = foreign.read_bytes()
    ended = run("journal", "tail", url(foreign))
    assert ended.code == 1
    assert "another program's SQLite file" in ended.complaint
    assert foreign.read_bytes() == before


def test_a_namespace_that_is_not_there_is_refused_with_those_that_are(file: Path) -> None:
    ended = run("journal", "verify", url(file), "--namespace", "users")
    assert ended.code == 1
    assert "no journal of 'users'; it has: resourcelease" in ended.complaint


def test_the_namespace_may_come_from_the_environment(tmp_path: Path) -> None:
    file = tmp_path / "leases.db"
    with omnirelay.connect_sync(url(file), namespace="users") as relay:
        relay.enqueue("table", "a")
    assert run("journal", "verify", url(file), OMNIRELAY_NAMESPACE="users").code == 0
    assert run("journal", "verify", url(file), OMNIRELAY_NAMESPACE="orders").code == 1
    alone = run("journal", "verify", url(file), "--json").json()
    assert alone["namespace"] == "users", "the only one there is"


@pytest.mark.parametrize("start", ["0", "-1", "x"])
def test_a_start_is_a_sequence(file: Path, start: str) -> None:
    ended = run("journal", "tail", url(file), "--from", start)
    assert ended.code == 2
    assert "--from" in ended.err
