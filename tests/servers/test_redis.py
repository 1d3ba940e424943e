"""Redis keeps the journal as every store must; what the server is, its durability says."""

from pathlib import Path

import pytest

from omnirelay.testing.servers_valkey import ValkeyServer
from omnirelay.testing.store_suite import JournalSuite, Medium
from tests.servers.redis_storage import RedisStorage


class TestRedisJournal(JournalSuite):
    @pytest.fixture(autouse=True)
    def _server(self, valkey: ValkeyServer) -> None:
        self.server = valkey

    @pytest.fixture
    def medium(self, _server: None, tmp_path: Path) -> Medium:
        return self.make_medium(tmp_path)

    def make_medium(self, folder: Path) -> Medium:
        return RedisStorage(self.server)
