"""What is Redis's own: scripts, retries, clusters' keys, and what its settings survive."""

from collections.abc import Iterator
from typing import Any

import pytest

from omnirelay.journal.backend import Durability
from omnirelay.model.errors import DiskFull, InvalidOption, Unavailable
from omnirelay.stores.redis import RedisJournal
from omnirelay.stores.redis_keys import Keys
from omnirelay.stores.redis_link import RedisTarget
from omnirelay.testing.envelopes import Scribe
from omnirelay.testing.servers_valkey import ValkeyServer, valkey_server
from omnirelay.testing.store_medium import SHARD, append_all
from tests.servers.redis_storage import fresh_prefix

SECRET = "pa-55-word"


@pytest.fixture(scope="module")
def lone() -> Iterator[ValkeyServer]:
    """A server whose settings a test may change."""
    with valkey_server() as server:
        yield server


def journal_at(server: ValkeyServer, user: str = "") -> RedisJournal:
    url = server.url(fresh_prefix()).replace("://", f"://{user}")
    return RedisJournal(RedisTarget.parse(url), SHARD)


async def stated(server: ValkeyServer, **settings: str) -> Durability:
    named = {name.replace("_", "-"): value for name, value in settings.items()}
    before = {name: server.execute("CONFIG", "GET", name)[name.encode()] for name in named}
    for name, value in named.items():
        server.execute("CONFIG", "SET", name, value)
    journal = journal_at(server)
    try:
        return await journal.durability()
    finally:
        await journal.close()
        for name, was in before.items():
            server.execute("CONFIG", "SET", name, was)


@pytest.mark.parametrize(
    ("settings", "survived"),
    [
        ({}, (True, True)),
        ({"appendfsync": "everysec"}, (False, False)),
        ({"appendfsync": "no"}, (True, False)),
        ({"appendonly": "no"}, (False, False)),
        ({"no_appendfsync_on_rewrite": "yes"}, (True, False)),
        ({"maxmemory": "1gb", "maxmemory_policy": "allkeys-lru"}, (False, False)),
        ({"maxmemory": "1gb", "maxmemory_policy": "noeviction"}, (True, True)),
        ({"maxmemory": "1gb", "maxmemory_policy": "volatile-lru"}, (True, True)),
    ],
)
async def test_the_server_states_what_its_settings_survive(
    lone: ValkeyServer, settings: dict[str, str], survived: tuple[bool, bool]
) -> None:
    found = await stated(lone, **settings)
    assert (found.survives_process_kill, found.survives_power_loss) == survived
    assert not found.survives_node_loss
    assert all(value in found.condition for value in settings.values() if value != "1gb")


async def test_settings_that_cannot_be_read_are_not_trusted(lone: ValkeyServer) -> None:
    lone.execute("ACL", "SETUSER", "blind", "on", f">{SECRET}", "~*", "+@all", "-config")
    journal = journal_at(lone, f"blind:{SECRET}@")
    await journal.open()
    found = await journal.durability()
    await journal.close()
    assert not found.survives_process_kill
    assert not found.survives_power_loss
    assert "CONFIG cannot be read" in found.condition
    assert SECRET not in found.condition


async def test_a_wrong_password_is_refused_and_not_repeated(lone: ValkeyServer) -> None:
    journal = journal_at(lone, f"blind:not-{SECRET}@")
    with pytest.raises(InvalidOption, match="refuses us") as caught:
        await journal.open()
    await journal.close()
    assert SECRET not in caught.value.message


async def test_a_server_without_room_refuses_whole(lone: ValkeyServer) -> None:
    journal, scribe = journal_at(lone), Scribe(SHARD)
    await journal.open()
    bodies = await append_all(journal, [scribe.seal()])
    lone.execute("CONFIG", "SET", "maxmemory", "1mb")
    try:
        with pytest.raises(DiskFull):
            await append_all(journal, [scribe.rival().seal()])
    finally:
        lone.execute("CONFIG", "SET", "maxmemory", "0")
    assert await journal.read(0, 10) == bodies
    await append_all(journal, [scribe.seal()])
    await journal.close()


async def test_a_replica_is_refused_before_the_first_append(lone: ValkeyServer) -> None:
    with valkey_server({"replicaof": f"127.0.0.1 {lone.port}"}) as replica:
        journal = journal_at(replica)
        with pytest.raises(Unavailable, match="replica"):
            await journal.open()
        await journal.close()


async def test_a_server_that_forgot_the_script_is_told_it_again(lone: ValkeyServer) -> None:
    journal, scribe = journal_at(lone), Scribe(SHARD)
    await journal.open()
    bodies = await append_all(journal, [scribe.seal()])
    lone.execute("SCRIPT", "FLUSH")
    bodies += await append_all(journal, [scribe.seal(), scribe.seal()])
    assert await journal.read(0, 10) == bodies
    await journal.close()


async def test_an_append_is_sent_once_however_it_ends(lone: ValkeyServer) -> None:
    journal, scribe = journal_at(lone), Scribe(SHARD)
    await journal.open()
    await append_all(journal, [scribe.seal()])
    before = _scripts(lone)
    lone.execute("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
    with pytest.raises(Unavailable):
        await append_all(journal, [scribe.seal()])
    assert _scripts(lone) - before <= 1
    await journal.close()


def _scripts(server: ValkeyServer) -> int:
    # Any: a section of INFO, by name.
    told: dict[str, Any] = server.execute("INFO", "commandstats")
    return int(told.get("cmdstat_evalsha", {}).get("calls", 0))


@pytest.mark.parametrize("shard", ["orders", "a}b", "{x}", "or/ders %"])
def test_all_keys_of_a_shard_share_one_hash_tag(shard: str) -> None:
    keys = Keys("p", shard)
    names = [*vars(keys).values(), keys.parts(7)]
    tags = {name.partition("{")[2].partition("}")[0] for name in names}
    assert len(tags) == 1
    assert "" not in tags
