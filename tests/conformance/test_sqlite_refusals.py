"""When a SQLite journal must not be opened, it says why, and leaves the file as it was."""

import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from omnirelay.model.errors import (
    Corrupt,
    InvalidOption,
    JournalOwned,
    OmniRelayError,
    Unavailable,
)
from omnirelay.stores.registry import open_address
from omnirelay.stores.sqlite import SqliteJournal
from omnirelay.testing.envelopes import Scribe

SHARD = "orders"
OWNER = """
import asyncio, sys
from omnirelay.stores.sqlite import SqliteJournal
from omnirelay.testing.envelopes import Scribe

async def main():
    journal = SqliteJournal(sys.argv[1], "orders")
    await journal.open()
    sealed = Scribe("orders").seal(3)
    await journal.append(sealed, expected=0)
    print("owned", flush=True)
    sys.stdin.read()

asyncio.run(main())
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "leases.db"


async def refusal(path: Path | str) -> OmniRelayError:
    """Why a handle does not open; what it may have taken on the way, it gives back."""
    journal = SqliteJournal(str(path), SHARD)
    try:
        with pytest.raises(OmniRelayError) as caught:
            await journal.open()
    finally:
        await journal.close()
    return caught.value


# -- the owner ----------------------------------------------------------------------------------


@contextmanager
def owned_by_another(path: Path) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", OWNER, str(path)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "owned\n"
        try:
            yield process
        finally:
            process.kill()


async def test_a_file_that_a_live_process_owns_is_refused_and_the_process_named(
    path: Path,
) -> None:
    with owned_by_another(path) as process:
        error = await refusal(path)
    assert isinstance(error, JournalOwned)
    assert error.pid == process.pid
    assert f"{path} is in use by process {process.pid}" in error.message


async def test_a_killed_owner_leaves_the_file_free_and_what_it_committed_inside(
    path: Path,
) -> None:
    with owned_by_another(path) as process:
        process.send_signal(signal.SIGKILL)
        process.wait()
        journal = SqliteJournal(str(path), SHARD)
        await journal.open()
        assert (await journal.head()).last == 3
        await journal.close()


async def test_a_second_handle_of_the_same_process_is_refused_too(path: Path) -> None:
    journal = SqliteJournal(str(path), SHARD)
    await journal.open()
    error = await refusal(path)
    assert isinstance(error, JournalOwned)
    assert error.pid == os.getpid()
    await journal.open()
    assert isinstance(await refusal(path), JournalOwned), "opened again, it is still owned"
    await journal.close()
    await journal.open()
    await journal.close()


async def test_an_owner_whose_number_cannot_be_read_is_still_an_owner(path: Path) -> None:
    journal = SqliteJournal(str(path), SHARD)
    await journal.open()
    path.with_name("leases.db-owner").write_text("?")
    error = await refusal(path)
    assert isinstance(error, JournalOwned)
    assert error.pid is None
    assert "another process" in error.message
    await journal.close()


# -- files that are not ours --------------------------------------------------------------------


def foreign_file(path: Path, *pragmas: str) -> bytes:
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("CREATE TABLE customers (name TEXT)")
        for pragma in pragmas:
            db.execute(f"PRAGMA {pragma}")
    return path.read_bytes()


@pytest.mark.parametrize(
    "pragmas",
    [
        (),
        ("user_version = 1",),
        ("user_version = 9",),
        ("application_id = 77",),
        ("application_id = 77", "user_version = 1"),
    ],
)
async def test_another_program_s_file_is_refused_and_not_touched(
    path: Path, pragmas: tuple[str, ...]
) -> None:
    before = foreign_file(path, *pragmas)
    error = await refusal(path)
    assert isinstance(error, InvalidOption)
    assert f"{path} is another program's SQLite file" in error.message
    assert path.read_bytes() == before


async def test_an_empty_file_of_another_program_is_refused_too(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("PRAGMA application_id = 77")
    assert "another program's" in (await refusal(path)).message


async def test_a_newer_schema_is_refused_with_the_advice_to_upgrade(path: Path) -> None:
    journal = SqliteJournal(str(path), SHARD)
    await journal.open()
    await journal.close()
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("PRAGMA user_version = 2")
    before = path.read_bytes()
    error = await refusal(path)
    assert isinstance(error, InvalidOption)
    assert "layout version 2" in error.message
    assert "upgrade" in error.message
    assert path.read_bytes() == before


async def test_an_empty_file_is_a_new_journal(path: Path) -> None:
    path.touch()
    journal = SqliteJournal(str(path), SHARD)
    await journal.open()
    assert (await journal.head()).last == 0
    await journal.close()


@pytest.mark.parametrize(
    "content", [b"x" * 100, b"\x00" * 8192, bytes(range(256)) * 32], ids=["text", "zeros", "bytes"]
)
async def test_garbage_is_called_damage_and_not_touched(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    error = await refusal(path)
    assert isinstance(error, Corrupt)
    assert "not a database" in error.message
    assert str(path) in error.message
    assert path.read_bytes() == content


async def test_a_damaged_page_is_called_damage(path: Path) -> None:
    journal = SqliteJournal(str(path), SHARD)
    await journal.open()
    scribe = Scribe(SHARD)
    for _ in range(3):
        sealed = scribe.seal(400)
        await journal.append(sealed, expected=sealed.first - 1)
    await journal.close()
    whole = path.read_bytes()
    path.write_bytes(whole[:4096] + b"\xa5" * (len(whole) - 4096))
    assert isinstance(await refusal(path), Corrupt)


# -- places that cannot hold a file -------------------------------------------------------------


@contextmanager
def as_nobody() -> Iterator[None]:
    """Root may write anywhere; a test of permissions has to be somebody else."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


async def test_a_folder_that_does_not_exist_is_named(tmp_path: Path) -> None:
    error = await refusal(tmp_path / "missing" / "leases.db")
    assert isinstance(error, InvalidOption)
    assert f"the folder {tmp_path / 'missing'} does not exist" in error.message


async def test_a_folder_that_may_not_be_written_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tmp_path.chmod(0o555)
    monkeypatch.chdir(tmp_path)  # nobody may enter the folders above it
    with as_nobody():
        error = await refusal("leases.db")
    tmp_path.chmod(0o755)
    assert isinstance(error, InvalidOption)
    assert "leases.db" in error.message
    assert "ermission denied" in error.message


async def test_a_folder_in_place_of_the_file_is_refused(tmp_path: Path) -> None:
    error = await refusal(tmp_path)
    assert isinstance(error, InvalidOption)
    assert "is a folder" in error.message


async def test_a_file_in_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "plain").touch()
    error = await refusal(tmp_path / "plain" / "leases.db")
    assert isinstance(error, InvalidOption)
    assert "plain" in error.message


async def test_a_reader_of_a_file_that_is_not_there_yet_says_so(path: Path) -> None:
    reader = SqliteJournal(str(path), SHARD).reader()
    with pytest.raises(Unavailable, match="cannot be opened"):
        await reader.head()
    assert not path.exists()


# -- addresses ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("sqlite:///leases.db", "leases.db"),
        ("sqlite:///data/leases.db", "data/leases.db"),
        ("sqlite:////var/lib/leases.db", "/var/lib/leases.db"),
        ("SQLite:///Leases.db", "Leases.db"),
        ("sqlite:///a%20b%3F%23.db", "a b?#.db"),
    ],
)
def test_an_address_names_its_file(url: str, path: str) -> None:
    journal = open_address(url, SHARD).journal
    assert isinstance(journal, SqliteJournal)
    assert (journal.path, journal.shard) == (path, SHARD)


def test_memory_is_an_address_too() -> None:
    assert open_address("memory:", SHARD).journal.name == "memory"


@pytest.mark.parametrize(
    "url",
    [
        "sqlite:leases.db",
        "sqlite:/leases.db",
        "sqlite://leases.db",
        "sqlite://host/leases.db",
        "sqlite://",
        "sqlite:///",
        "sqlite:///folder/",
        "sqlite:///a%00b",
        "sqlite:///leases.db?mode=ro",
        "sqlite:///leases.db#part",
        "sqlite:///:memory:",
        "sqlite://[x/leases.db",
        "cassandra://host/db",
        "leases.db",
        "",
    ],
)
def test_an_address_that_names_no_file_is_refused_with_an_example(url: str) -> None:
    with pytest.raises(InvalidOption, match="sqlite:///"):
        open_address(url, SHARD)
