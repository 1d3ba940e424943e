"""PostgreSQL keeps the journal as every store must."""

from pathlib import Path

import pytest

from omnirelay.testing.servers_postgres import PostgresServer
from omnirelay.testing.store_suite import JournalSuite, Medium
from tests.servers.postgres_storage import PostgresStorage


class TestPostgresJournal(JournalSuite):
    @pytest.fixture(autouse=True)
    def _server(self, postgres: PostgresServer) -> None:
        self.server = postgres

    @pytest.fixture(params=[1 << 16, 4])
    def medium(self, request: pytest.FixtureRequest, tmp_path: Path) -> Medium:
        """Once in one segment, as usual, and once with envelopes that pass over several."""
        self.segment_events = request.param
        return self.make_medium(tmp_path)

    def make_medium(self, folder: Path) -> Medium:
        return PostgresStorage(self.server, segment_events=self.segment_events)
