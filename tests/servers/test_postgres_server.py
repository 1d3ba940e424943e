"""What is PostgreSQL's own: segments, what it states about itself, roles, and standbys."""

import asyncio
from collections.abc import Iterator
from urllib.parse import quote

import pytest

from omnirelay.journal.backend import Durability
from omnirelay.model.errors import Corrupt, InvalidOption, OutcomeUnknown, TooLittleDurability
from omnirelay.stores.postgres import PostgresJournal
from omnirelay.stores.postgres_link import PostgresTarget
from omnirelay.stores.postgres_reading import PostgresReader
from omnirelay.testing.envelopes import Scribe, scan
from omnirelay.testing.servers_postgres import GUARDED, PostgresServer, postgres_server
from omnirelay.testing.store_medium import FOREVER, SHARD, append_all, opened
from tests.servers.postgres_storage import PostgresStorage, fresh_schema

SECRET = "pa-55-word"


def journal_at(url: str) -> PostgresJournal:
    return PostgresJournal(PostgresTarget.parse(url), SHARD)


# -- segments -----------------------------------------------------------------------------------


async def test_pruning_drops_the_tables_of_whole_segments(postgres: PostgresServer) -> None:
    storage = PostgresStorage(postgres, segment_events=10)
    scribe = Scribe(SHARD)
    async with opened(storage) as journal:
        bodies = await append_all(journal, [scribe.seal(3) for _ in range(20)])
        assert len(storage.segments()) == 6
        assert await journal.prune(32, before_ms=FOREVER, limit=4) == 4
        assert storage.segments()[0].endswith("_1")
        assert await journal.prune(32, before_ms=FOREVER, limit=100) == 6
        assert storage.segments()[0].endswith("_3")
        assert await journal.first() == 31
        assert await journal.read(30, 100) == bodies[10:]
    assert len(storage.bodies()) == 10, "30 ended where its segment did: nothing is left behind"


async def test_a_segment_that_somebody_reads_is_dropped_the_next_time(
    postgres: PostgresServer,
) -> None:
    storage = PostgresStorage(postgres, segment_events=10)
    scribe = Scribe(SHARD)
    async with opened(storage) as journal:
        await append_all(journal, [scribe.seal(5) for _ in range(6)])
        first, *_ = storage.segments()
        postgres.execute("BEGIN")
        postgres.execute(f"SELECT count(*) FROM {storage.schema}.{first}")
        assert await journal.prune(20, before_ms=FOREVER, limit=100) == 4
        postgres.execute("COMMIT")
        assert first in storage.segments()
        with pytest.raises(Corrupt):
            await journal.read(0, 1)
        assert await journal.prune(25, before_ms=FOREVER, limit=100) == 1
        assert first not in storage.segments()


async def test_a_missing_segment_is_damage(postgres: PostgresServer) -> None:
    storage = PostgresStorage(postgres, segment_events=10)
    scribe = Scribe(SHARD)
    async with opened(storage) as journal:
        await append_all(journal, [scribe.seal(5) for _ in range(6)])
        postgres.execute(f"DROP TABLE {storage.schema}.{storage.segments()[1]}")
        with pytest.raises(Corrupt):
            await scan(journal, SHARD)


async def test_a_reader_may_come_before_the_first_writer(postgres: PostgresServer) -> None:
    reader = PostgresReader(PostgresTarget.parse(postgres.url(fresh_schema())), SHARD)
    assert (await reader.head()).last == 0
    assert await reader.read(0, 10) == []
    await reader.wait_for_more(0, 0.05)
    await reader.close()


# -- who may ------------------------------------------------------------------------------------


@pytest.fixture
def guarded(postgres: PostgresServer) -> Iterator[PostgresServer]:
    postgres.execute(f"CREATE ROLE {GUARDED} LOGIN PASSWORD '{SECRET}'")
    yield postgres
    postgres.execute(f"DROP OWNED BY {GUARDED}")
    postgres.execute(f"DROP ROLE {GUARDED}")


@pytest.mark.parametrize("password", ["", f":not-{SECRET}"])
async def test_a_wrong_password_is_refused_and_not_repeated(
    guarded: PostgresServer, password: str
) -> None:
    journal = journal_at(guarded.url("s", user=f"{GUARDED}{password}"))
    with pytest.raises(InvalidOption, match="refuses us") as caught:
        await journal.open()
    assert SECRET not in caught.value.message


async def test_a_role_that_may_not_create_tables_is_told_what_to_grant(
    guarded: PostgresServer,
) -> None:
    url = guarded.url(fresh_schema(), user=f"{GUARDED}:{SECRET}")
    journal = journal_at(url)
    with pytest.raises(InvalidOption, match="grant its role CREATE") as caught:
        await journal.open()
    await journal.close()
    assert SECRET not in caught.value.message


async def test_handles_that_come_first_together_make_one_schema(postgres: PostgresServer) -> None:
    url = postgres.url(fresh_schema())
    journals = [journal_at(url) for _ in range(6)]
    await asyncio.gather(*(journal.open() for journal in journals))
    scribe = Scribe(SHARD)
    await append_all(journals[0], [scribe.seal()])
    assert [(await journal.head()).last for journal in journals] == [1] * 6
    for journal in journals:
        await journal.close()


# -- what it states -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def lone() -> Iterator[PostgresServer]:
    """A server whose settings a test may change."""
    with postgres_server() as server:
        yield server


def told(server: PostgresServer, **settings: str) -> None:
    for name, value in settings.items():
        server.execute(f"ALTER SYSTEM SET {name} = '{value}'")
    server.execute("SELECT pg_reload_conf()")


@pytest.fixture
def settled(lone: PostgresServer) -> Iterator[PostgresServer]:
    yield lone
    lone.execute("ALTER SYSTEM RESET ALL")
    lone.execute("SELECT pg_reload_conf()")


async def stated(server: PostgresServer, session: str = "", **settings: str) -> Durability:
    journal = journal_at(server.url("stated") + session)
    await journal.open()
    told(server, **settings)
    try:
        async with asyncio.timeout(5):
            while True:  # a session takes up a reload between two statements
                found = await journal.durability()
                if all(value in found.condition for value in settings.values()):
                    return found
    finally:
        await journal.close()


def survived(found: Durability) -> tuple[bool, bool, bool]:
    return found.survives_process_kill, found.survives_power_loss, found.survives_node_loss


async def test_a_server_as_it_comes_survives_power_loss_and_not_its_node(
    settled: PostgresServer,
) -> None:
    found = await stated(settled)
    assert survived(found) == (True, True, False)
    assert "fsync=on" in found.condition
    with pytest.raises(TooLittleDurability):
        found.require("node_loss", "postgres")


@pytest.mark.parametrize("name", ["fsync", "full_page_writes"])
async def test_a_server_that_does_not_sync_says_so(settled: PostgresServer, name: str) -> None:
    found = await stated(settled, **{name: "off"})
    assert survived(found) == (True, False, False)
    assert f"{name}=off" in found.condition


async def test_a_session_that_does_not_wait_survives_nothing(settled: PostgresServer) -> None:
    options = quote("-c synchronous_commit=off")
    found = await stated(settled, session=f"&options={options}")
    assert survived(found) == (False, False, False)


@pytest.mark.parametrize(
    ("commit", "node_loss"),
    [("local", False), ("remote_write", True), ("on", True), ("remote_apply", True)],
)
async def test_a_standby_counts_if_commits_wait_for_it(
    settled: PostgresServer, commit: str, node_loss: bool
) -> None:
    options = quote(f"-c synchronous_commit={commit}")
    found = await stated(
        settled, session=f"&options={options}", synchronous_standby_names="elsewhere"
    )
    assert survived(found) == (True, True, node_loss)


async def test_a_commit_that_no_standby_confirmed_is_not_called_done(
    settled: PostgresServer,
) -> None:
    journal = journal_at(settled.url("unconfirmed"))
    await journal.open()
    told(settled, synchronous_standby_names="elsewhere")
    try:
        with pytest.raises(OutcomeUnknown, match="synchronous replication"):
            await asyncio.wait_for(_append_until_cut(journal, settled), 15)
    finally:
        await journal.close()


async def _append_until_cut(journal: PostgresJournal, server: PostgresServer) -> None:
    """The server's checkpointer takes a reload up in its own time; commits before that wait for
    nobody."""
    scribe = Scribe(SHARD)
    ended = "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
    while True:
        sealed = scribe.seal()
        appending = asyncio.create_task(journal.append(sealed, expected=sealed.first - 1))
        while not appending.done():
            await asyncio.to_thread(server.execute, ended)
        await appending
