"""Journals behind a hub as storage for the suite, and their bytes behind the hub's back."""

from pathlib import Path

from omnirelay.journal.backend import JournalTarget
from omnirelay.sdk.threads import LoopThread
from omnirelay.stores.registry import open_address
from omnirelay.testing.servers_hub import HubHost
from omnirelay.testing.servers_postgres import PostgresServer
from omnirelay.testing.servers_valkey import ValkeyServer
from omnirelay.testing.store_suite import SHARD
from tests.conformance.object_storage import ObjectStorage
from tests.conformance.storages import SqliteStorage
from tests.servers.nats_storage import NatsStorage
from tests.servers.postgres_storage import PostgresStorage
from tests.servers.redis_storage import RedisStorage


class HubOnSqlite(SqliteStorage):
    def __init__(self, hubs: HubHost, folder: Path) -> None:
        self._path = folder / "hub" / f"{SHARD}.db"
        self.hub = hubs.open(folder)

    def handle(self, shard: str = SHARD) -> JournalTarget:
        return open_address(self.hub, shard).journal


class HubOnPostgres(PostgresStorage):
    def __init__(self, hubs: HubHost, server: PostgresServer, folder: Path) -> None:
        super().__init__(server, segment_events=1 << 16)
        self.hub = hubs.open(folder, self.url)

    def handle(self, shard: str = SHARD) -> JournalTarget:
        return open_address(self.hub, shard).journal


class HubOnRedis(RedisStorage):
    def __init__(self, hubs: HubHost, server: ValkeyServer, folder: Path) -> None:
        super().__init__(server)
        self.hub = hubs.open(folder, self.url)

    def handle(self, shard: str = SHARD) -> JournalTarget:
        return open_address(self.hub, shard).journal


class HubOnNats(NatsStorage):
    def __init__(self, hubs: HubHost, url: str, aside: LoopThread, folder: Path) -> None:
        super().__init__(url, aside)
        self.hub = hubs.open(folder, url)

    def handle(self, shard: str = SHARD) -> JournalTarget:
        return open_address(self.hub, shard).journal


class HubOnFiles(ObjectStorage):
    def __init__(self, hubs: HubHost, folder: Path) -> None:
        url = f"file://{folder}/journals"
        super().__init__(url)
        self.hub = hubs.open(folder, url)

    def handle(self, shard: str = SHARD) -> JournalTarget:
        return open_address(self.hub, shard).journal
