"""What only the SQLite journal has: its schema, its view, its readers, its statement, its mark."""

import asyncio
import json
import os
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import apsw
import pytest

import omnirelay
from omnirelay.journal.events import events_of
from omnirelay.journal.format import Envelope, seal, unseal
from omnirelay.model.errors import Corrupt, Fenced, TooLittleDurability, Unavailable
from omnirelay.model.items import to_time
from omnirelay.stores.file_systems import file_system
from omnirelay.stores.sqlite import SqliteJournal
from omnirelay.testing.envelopes import Scribe, scan

SHARD = "orders"
ENVELOPE = Path(__file__).parents[1] / "fixtures" / "envelope-v1.json"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "leases.db"


@pytest.fixture
async def journal(path: Path) -> AsyncIterator[SqliteJournal]:
    journal = SqliteJournal(str(path), SHARD)
    await journal.open()
    yield journal
    await journal.close()


async def append(journal: SqliteJournal, scribe: Scribe, *counts: int) -> None:
    for count in counts:
        sealed = scribe.seal(count)
        await journal.append(sealed, expected=sealed.first - 1)


async def append_every_kind(journal: SqliteJournal) -> Envelope:
    """Store the records of the version 1 fixture, which has one of each kind, in our shard."""
    whole = unseal(ENVELOPE.read_bytes().strip(), shard="resourcelease", at=1)
    sealed = seal(
        whole.records,
        (whole.pending, whole.active),
        head=(SHARD, whole.epoch, whole.node),
        first=1,
        time=whole.time,
        prev="",
    )
    await journal.append(sealed, expected=0)
    return unseal(sealed.body, shard=SHARD, at=1)


# -- schema and view ----------------------------------------------------------------------------


async def test_the_journal_table_has_the_columns_that_were_promised(
    journal: SqliteJournal, path: Path
) -> None:
    with closing(sqlite3.connect(path)) as db:
        columns = [(row[1], row[2]) for row in db.execute("PRAGMA table_info(journal)")]
    assert columns == [
        ("shard", "TEXT"),
        ("first", "INTEGER"),
        ("last", "INTEGER"),
        ("epoch", "INTEGER"),
        ("written_at", "INTEGER"),
        ("body", "TEXT"),
    ]


async def test_a_row_says_outside_what_its_body_says_inside(
    journal: SqliteJournal, path: Path
) -> None:
    scribe = Scribe(SHARD, epoch=4)
    await append(journal, scribe, 2, 1, 3)
    sql = (
        "SELECT shard, first, last, epoch, written_at, body ->> '$.shard', body ->> '$.first',"
        " body ->> '$.last', body ->> '$.epoch', body ->> '$.time', json_valid(body) FROM journal"
    )
    with closing(sqlite3.connect(path)) as db:
        rows = db.execute(sql).fetchall()
    assert len(rows) == 3
    for row in rows:
        assert row[:5] == row[5:10]
        assert row[10] == 1


async def test_the_view_has_one_row_for_each_event_with_the_event_s_values(
    journal: SqliteJournal, path: Path
) -> None:
    envelope = await append_every_kind(journal)
    events = list(events_of(envelope))
    with closing(sqlite3.connect(path)) as db:
        db.row_factory = sqlite3.Row
        rows = db.execute("SELECT * FROM lease_events ORDER BY sequence_number").fetchall()
    assert len(rows) == len(events)
    assert len({event.event_type for event in events}) == 12
    for row, event in zip(rows, events, strict=True):
        assert row["sequence_number"] == event.sequence_number
        assert row["event_type"] == event.event_type
        assert (
            row["timestamp"] == to_time(envelope.time).strftime("%Y-%m-%dT%H:%M:%S.%f")[:23] + "Z"
        )
        assert (row["shard"], row["epoch"], row["node"]) == (SHARD, event.epoch, event.node)
        assert row["sequence_id"] == event.sequence_id
        assert row["attempt"] == event.attempt
        assert row["fence"] == event.fence
        assert row["peer_id"] == event.peer_id
        assert row["principal"] == (event.principal or "anonymous")
        assert row["disposition"] == event.disposition
        assert row["lease_id"] == (event.ownership.lease_id if event.ownership else None)
        depths = json.loads(row["metadata"])
        assert str(depths["queue.pending"]) == event.metadata["queue.pending"]
        assert str(depths["queue.active"]) == event.metadata["queue.active"]
        assert depths["shard.id"] == SHARD
        assert (row["items"] is None) == (event.items is None)
        if event.items is not None:
            assert len(json.loads(row["items"])) == len(event.items)


async def test_the_view_shows_payload_error_and_expiry_as_they_were_recorded(
    journal: SqliteJournal, path: Path
) -> None:
    events = {event.event_type: event for event in events_of(await append_every_kind(journal))}
    sql = "SELECT payload, error, expires_at FROM lease_events WHERE sequence_number = ?"
    with closing(sqlite3.connect(path)) as db:
        rows = {
            kind: db.execute(sql, (event.sequence_number,)).fetchone()
            for kind, event in events.items()
        }
    payload = events["Enqueue"].payload
    assert payload is not None
    assert json.loads(rows["Enqueue"][0])["resourceId"] == payload.resource_id
    failed = events["Failed"].error
    assert failed is not None
    assert json.loads(rows["Failed"][1]) == {"message": failed.message, "code": failed.code}
    expiry = events["LeaseGranted"].expires_at
    assert expiry is not None
    assert rows["LeaseGranted"][2] == expiry.strftime("%Y-%m-%dT%H:%M:%S.%f")[:23] + "Z"


# -- readers and statement ----------------------------------------------------------------------


async def test_a_reader_cannot_write_and_reads_while_the_writer_writes(
    journal: SqliteJournal, path: Path
) -> None:
    scribe = Scribe(SHARD)
    await append(journal, scribe, 2)
    reader = journal.reader()
    with closing(apsw.Connection(str(path))) as rival:
        rival.execute("BEGIN IMMEDIATE; DELETE FROM journal")  # a write transaction, not committed
        assert [e.last for e in await scan(reader, SHARD)] == [2]
        rival.execute("ROLLBACK")
    for _ in range(5):
        await append(journal, scribe, 1, 2)
        assert (await reader.head()).last == scribe.last
        assert len(await scan(reader, SHARD)) > 1
    await reader.close()
    from_outside = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    with closing(from_outside), pytest.raises(apsw.ReadOnlyError):
        from_outside.execute("DELETE FROM journal")


async def test_a_reader_keeps_nothing_of_a_file_that_a_later_writer_changes(
    journal: SqliteJournal,
) -> None:
    """Its reads end their transactions, so that the write-ahead log can be folded back."""
    scribe = Scribe(SHARD)
    await append(journal, scribe, 2)
    reader = journal.reader()
    await reader.read(0, 1)
    with closing(apsw.Connection(journal.path)) as other:
        busy, _, _ = other.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone() or (1, 0, 0)
    assert busy == 0
    await reader.close()


async def test_the_statement_is_what_the_connection_is_set_to(journal: SqliteJournal) -> None:
    stated = await journal.durability()
    assert stated.survives_process_kill
    assert stated.survives_power_loss == (file_system(journal.path).loss is None)
    assert not stated.survives_node_loss
    assert "WAL" in stated.condition
    assert apsw.sqlite_lib_version() in stated.condition
    stated.require("process_kill", journal.name)
    with pytest.raises(TooLittleDurability, match="sqlite does not survive node_loss"):
        stated.require("node_loss", journal.name)
    with pytest.raises(TooLittleDurability, match="'everything'"):
        stated.require("everything", journal.name)


async def test_a_weaker_setting_is_stated_as_one(journal: SqliteJournal) -> None:
    journal._db.execute("PRAGMA synchronous=NORMAL")
    assert not (await journal.durability()).survives_power_loss


async def test_a_file_in_memory_does_not_survive_a_power_cut_and_says_why() -> None:
    with TemporaryDirectory(dir="/dev/shm") as folder:
        journal = SqliteJournal(f"{folder}/leases.db", SHARD)
        await journal.open()
        stated = await journal.durability()
        await journal.close()
        assert (stated.survives_process_kill, stated.survives_power_loss) == (True, False)
        url = f"sqlite:///{folder}/leases.db"
        with pytest.raises(TooLittleDurability, match=r"power_loss .*tmpfs is kept in memory"):
            await omnirelay.connect(url, require="power_loss")
        async with omnirelay.connect(url, require="process_kill") as relay:
            await relay.enqueue("table", "a")


async def test_handles_without_the_owner_s_lock_are_kept_apart_by_the_append_alone(
    path: Path,
) -> None:
    one, two = (SqliteJournal(str(path), SHARD, owner=False) for _ in range(2))
    await one.open()
    await two.open()
    scribe = Scribe(SHARD)
    await append(one, scribe, 1)
    await append(two, scribe.rival(epoch=2), 1)
    with pytest.raises(Fenced):
        await append(one, scribe, 1)
    await one.close()
    await two.close()


async def opens(journal: SqliteJournal) -> bool:
    """As a shard does: SQLite lets only one at a time turn a file to WAL, and who comes second is
    told that it is locked."""
    with suppress(Unavailable):
        await journal.open()
        return True
    return False


async def test_many_handles_may_create_one_file_at_the_same_moment(path: Path) -> None:
    async def create(number: int) -> None:
        journal = SqliteJournal(str(path), f"shard-{number}", owner=False)
        while not await opens(journal):
            continue
        await append(journal, Scribe(f"shard-{number}"), 2)
        await journal.close()

    await asyncio.gather(*(asyncio.to_thread(asyncio.run, create(n)) for n in range(6)))
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("SELECT count(*) FROM journal").fetchone() == (6,)


# -- the mark -----------------------------------------------------------------------------------


def mark_of(path: Path) -> Path:
    return path.with_name(f"{path.name}-{SHARD}.mark")


async def closed_journal(path: Path, *counts: int) -> Scribe:
    journal, scribe = SqliteJournal(str(path), SHARD), Scribe(SHARD)
    await journal.open()
    await append(journal, scribe, *counts)
    await journal.close()
    return scribe


async def open_error(path: Path) -> Corrupt:
    journal = SqliteJournal(str(path), SHARD)
    try:
        with pytest.raises(Corrupt) as caught:
            await journal.open()
    finally:
        await journal.close()
    return caught.value


async def test_a_lost_tail_names_both_ends_and_the_file_that_knows(path: Path) -> None:
    await closed_journal(path, 2, 3, 1)
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("DELETE FROM journal WHERE first > 2")
    error = await open_error(path)
    assert error.sequence == 3
    assert "ends at 2 but 6 was acknowledged" in error.message
    assert str(mark_of(path)) in error.message


async def test_a_journal_file_that_vanished_is_not_begun_anew(path: Path) -> None:
    await closed_journal(path, 2, 3)
    for file in path.parent.glob("leases.db*"):
        if file != mark_of(path):
            file.unlink()
    assert (await open_error(path)).sequence == 1


async def test_an_accepted_loss_is_accepted_by_removing_the_mark(path: Path) -> None:
    await closed_journal(path, 2, 3)
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("DELETE FROM journal WHERE first > 2")
    mark_of(path).unlink()
    journal = SqliteJournal(str(path), SHARD)
    await journal.open()
    assert (await journal.head()).last == 2
    await journal.close()


async def test_an_end_that_differs_from_the_acknowledged_one_is_noticed(path: Path) -> None:
    await closed_journal(path, 2, 3)
    other = Scribe(SHARD, time=7_000)
    bodies = [other.seal(count).body for count in (2, 3)]
    with closing(sqlite3.connect(path)) as db, db:
        for first, body in zip((1, 3), bodies, strict=True):
            sql = "UPDATE journal SET body = CAST(? AS TEXT) WHERE first = ?"
            db.execute(sql, (body, first))
    error = await open_error(path)
    assert error.sequence == 5
    assert "not the one that was acknowledged" in error.message


async def test_a_mark_that_was_torn_is_ignored_and_the_other_one_counts(path: Path) -> None:
    await closed_journal(path, 2, 3, 1)
    whole = mark_of(path).read_bytes()
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("DELETE FROM journal")
    lasts = set()
    for at, byte in enumerate(whole):
        if byte in b" \n":
            continue  # between and behind the fields, where a torn write changes nothing
        torn = whole[:at] + b"#" + whole[at + 1 :]
        mark_of(path).write_bytes(torn)
        error = await open_error(path)
        lasts.add(error.message.split(" was acknowledged")[0].split()[-1])
    assert lasts == {"5", "6"}


@pytest.mark.parametrize("content", [b"", b"#" * 160, b"\x00" * 160, b"6 1 ", b"x" * 4096])
async def test_a_mark_that_cannot_be_read_stops_nothing(path: Path, content: bytes) -> None:
    scribe = await closed_journal(path, 2)
    mark_of(path).write_bytes(content)
    journal = SqliteJournal(str(path), SHARD)
    await journal.open()
    await append(journal, scribe, 1)
    await journal.close()
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("DELETE FROM journal WHERE first > 2")
    assert (await open_error(path)).sequence == 3


async def test_a_mark_that_lags_behind_is_no_loss(path: Path) -> None:
    scribe = await closed_journal(path, 2)
    old = mark_of(path).read_bytes()
    journal = SqliteJournal(str(path), SHARD)
    await journal.open()
    await append(journal, scribe, 3)
    await journal.close()
    mark_of(path).write_bytes(old)
    await journal.open()
    assert (await journal.head()).last == 5
    await journal.close()


async def test_the_mark_s_room_is_taken_when_the_journal_opens(path: Path) -> None:
    """A map over a hole kills the process on a full disk, where a write would have said so."""
    journal = SqliteJournal(str(path), SHARD)
    await journal.open()
    assert os.stat(mark_of(path)).st_blocks > 0
    await journal.close()
