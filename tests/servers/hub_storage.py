"""Journals behind a hub as storage for the suite, and their bytes behind the hub's back."""

from pathlib import Path

from omnirelay.journal.backend import JournalTarget
from omnirelay.stores.registry import open_address
from omnirelay.testing.servers_hub import HubHost
from omnirelay.testing.servers_postgres import PostgresServer
from omnirelay.testing.store_suite import SHARD
from tests.conformance.storages import SqliteStorage
from tests.servers.postgres_storage import PostgresStorage


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
