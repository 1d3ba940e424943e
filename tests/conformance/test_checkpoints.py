"""Every checkpoint store behaves as one."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from omnirelay.journal.checkpoint import Checkpoint, CheckpointStore
from omnirelay.stores.memory_positions import MemoryCheckpoints
from omnirelay.stores.registry import open_address
from omnirelay.stores.sqlite_positions import SqliteCheckpoints


@pytest.fixture(params=["memory", "sqlite", "file"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[CheckpointStore]:
    found: CheckpointStore = MemoryCheckpoints()
    if request.param == "sqlite":
        found = SqliteCheckpoints(str(tmp_path / "positions"))
    if request.param == "file":
        opened = open_address(f"file://{tmp_path}/journals", "s")
        await opened.journal.open()
        await opened.journal.close()
        found = opened.checkpoints
    yield found
    await found.close()


def at(position: int, name: str = "lake", shard: str = "s") -> Checkpoint:
    return Checkpoint(name, shard, position, {"größe": position}, 1000 + position)


async def test_a_reader_nobody_knows_has_no_checkpoint(store: CheckpointStore) -> None:
    assert await store.read("lake", "s") is None
    assert await store.slowest("s") is None


async def test_a_checkpoint_comes_back_as_it_was_written(store: CheckpointStore) -> None:
    await store.write(at(5))
    assert await store.read("lake", "s") == at(5)


async def test_a_position_never_goes_back(store: CheckpointStore) -> None:
    await store.write(at(5))
    await store.write(at(3))
    assert await store.read("lake", "s") == at(5)
    await store.write(at(6))
    assert await store.read("lake", "s") == at(6)


async def test_readers_and_shards_do_not_mix(store: CheckpointStore) -> None:
    await store.write(at(5))
    await store.write(at(7, name="search"))
    await store.write(at(2, shard="other"))
    assert (await store.read("search", "s")) == at(7, name="search")
    assert (await store.read("lake", "other")) == at(2, shard="other")


async def test_the_slowest_reader_of_a_shard_is_the_one_that_counts(
    store: CheckpointStore,
) -> None:
    await store.write(at(5))
    await store.write(at(7, name="search"))
    await store.write(at(2, shard="other"))
    assert await store.slowest("s") == 5


async def test_the_readers_of_a_shard_are_listed_by_name_without_their_peers(
    store: CheckpointStore,
) -> None:
    assert await store.readers("s") == []
    for one in (at(7, name="search"), at(5), at(2, shard="other")):
        await store.write(one)
    assert await store.readers("s") == [
        Checkpoint("lake", "s", 5, {}, 1005),
        Checkpoint("search", "s", 7, {}, 1007),
    ]


async def test_a_forgotten_reader_holds_back_nothing_and_starts_anew(
    store: CheckpointStore,
) -> None:
    await store.write(at(5))
    await store.write(at(7, name="search"))
    await store.forget("lake", "s")
    await store.forget("nobody", "s")
    assert await store.read("lake", "s") is None
    assert await store.slowest("s") == 7
    await store.write(at(1))
    assert await store.slowest("s") == 1


async def test_a_closed_store_of_a_file_opens_again_where_it_was(tmp_path: Path) -> None:
    path = str(tmp_path / "positions")
    first = SqliteCheckpoints(path)
    await first.write(at(5))
    await first.close()
    second = SqliteCheckpoints(path)
    assert await second.read("lake", "s") == at(5)
    await second.close()
