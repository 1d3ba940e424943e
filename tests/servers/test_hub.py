"""A journal behind a hub behaves as every journal does, whatever store the hub keeps it in."""

import asyncio
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from omnirelay.model.errors import Fenced
from omnirelay.sdk.threads import LoopThread
from omnirelay.stores.registry import open_address
from omnirelay.testing.envelopes import Scribe, scan
from omnirelay.testing.servers_hub import HubHost
from omnirelay.testing.servers_nats import NatsServers
from omnirelay.testing.servers_postgres import PostgresServer
from omnirelay.testing.servers_valkey import ValkeyServer
from omnirelay.testing.store_suite import SHARD, JournalSuite, Medium
from tests.servers.hub_storage import (
    HubOnFiles,
    HubOnNats,
    HubOnPostgres,
    HubOnRedis,
    HubOnSqlite,
)
from tests.servers.postgres_storage import fresh_schema

_numbers = count()


@pytest.fixture(scope="module")
def aside() -> Iterator[LoopThread]:
    thread = LoopThread("behind-the-hub")
    yield thread
    thread.stop()


class TestHubOnSqlite(JournalSuite):
    @pytest.fixture
    def medium(self, hubs: HubHost, tmp_path: Path) -> Iterator[Medium]:
        self.hubs = hubs
        medium = self.make_medium(tmp_path)
        yield medium
        hubs.close(medium.hub)

    def make_medium(self, folder: Path) -> HubOnSqlite:
        return HubOnSqlite(self.hubs, folder)


class TestHubOnPostgres(JournalSuite):
    @pytest.fixture
    def medium(self, hubs: HubHost, postgres: PostgresServer, tmp_path: Path) -> Iterator[Medium]:
        self.hubs, self.postgres = hubs, postgres
        medium = self.make_medium(tmp_path)
        yield medium
        hubs.close(medium.hub)

    def make_medium(self, folder: Path) -> HubOnPostgres:
        return HubOnPostgres(self.hubs, self.postgres, folder)


class TestHubOnRedis(JournalSuite):
    @pytest.fixture
    def medium(self, hubs: HubHost, valkey: ValkeyServer, tmp_path: Path) -> Iterator[Medium]:
        self.hubs, self.valkey = hubs, valkey
        medium = self.make_medium(tmp_path)
        yield medium
        hubs.close(medium.hub)

    def make_medium(self, folder: Path) -> HubOnRedis:
        return HubOnRedis(self.hubs, self.valkey, folder)


class TestHubOnNats(JournalSuite):
    @pytest.fixture
    def medium(
        self, hubs: HubHost, nats_one: NatsServers, aside: LoopThread, tmp_path: Path
    ) -> Iterator[Medium]:
        self.hubs, self.servers, self.aside = hubs, nats_one, aside
        medium = self.make_medium(tmp_path)
        yield medium
        hubs.close(medium.hub)

    def make_medium(self, folder: Path) -> HubOnNats:
        url = self.servers.url(f"H{next(_numbers)}")
        return HubOnNats(self.hubs, url, self.aside, folder)


class TestHubOnFiles(JournalSuite):
    @pytest.fixture
    def medium(self, hubs: HubHost, tmp_path: Path) -> Iterator[Medium]:
        self.hubs = hubs
        medium = self.make_medium(tmp_path)
        yield medium
        hubs.close(medium.hub)

    def make_medium(self, folder: Path) -> HubOnFiles:
        return HubOnFiles(self.hubs, folder)


async def test_two_hubs_over_one_store_are_kept_apart_by_the_store(
    hubs: HubHost, postgres: PostgresServer, tmp_path: Path
) -> None:
    address, scribe = postgres.url(fresh_schema()), Scribe(SHARD)
    urls = [hubs.open(tmp_path / name, address) for name in ("one", "two")]
    one, two = (open_address(url, SHARD).journal for url in urls)
    await one.open()
    await two.open()
    for number in range(3):  # what one hub stores wakes who waits at the other
        sealed = scribe.seal(2)
        async with asyncio.timeout(10):
            waiting = asyncio.create_task(two.wait_for_more(2 * number, 60.0))
            await one.append(sealed, expected=sealed.first - 1)
            await waiting
    rival = scribe.rival(epoch=2)
    await two.append(rival.seal(), expected=scribe.last)
    with pytest.raises(Fenced):
        await one.append(scribe.seal(), expected=6)
    assert [envelope.epoch for envelope in await scan(one, SHARD)] == [1, 1, 1, 2]
    for journal, url in ((one, urls[0]), (two, urls[1])):
        await journal.close()
        hubs.close(url)
