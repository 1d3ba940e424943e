"""A schema of a real PostgreSQL as storage for the suite, and its bytes behind the store's back."""

import itertools
import os

from omnirelay.journal.backend import JournalTarget
from omnirelay.stores.postgres import PostgresJournal
from omnirelay.stores.postgres_link import PostgresTarget
from omnirelay.testing.servers_postgres import PostgresServer
from omnirelay.testing.store_suite import SHARD, Medium

_numbers = itertools.count()


def fresh_schema() -> str:
    return f"s{os.getpid()}_{next(_numbers)}"


class PostgresStorage(Medium):
    def __init__(self, server: PostgresServer, *, segment_events: int) -> None:
        self.server = server
        self.schema = fresh_schema()
        self.url = server.url(self.schema)
        self._segment_events = segment_events

    def handle(self, shard: str = SHARD) -> JournalTarget:
        target = PostgresTarget.parse(self.url)
        return PostgresJournal(target, shard, segment_events=self._segment_events)

    def segments(self) -> list[str]:
        rows = self.server.execute(
            f"SELECT tablename FROM pg_tables WHERE schemaname = '{self.schema}' "
            f"AND tablename LIKE 'segment%' ORDER BY length(tablename), tablename"
        )
        return [row[0] for row in rows]

    def _rows(self) -> list[tuple[int, bytes]]:
        rows = self.server.execute(
            f"SELECT first, body FROM {self.schema}.journal WHERE shard = '{SHARD}' ORDER BY first"
        )
        return [(first, bytes(body)) for first, body in rows]

    def bodies(self) -> list[bytes]:
        return [body for _, body in self._rows()]

    def put_body(self, at: int, body: bytes) -> None:
        self.server.execute(
            f"UPDATE {self.schema}.journal SET body = '\\x{body.hex()}' "
            f"WHERE shard = '{SHARD}' AND first = {self._rows()[at][0]}"
        )

    def drop(self, at: int) -> None:
        self.server.execute(
            f"DELETE FROM {self.schema}.journal "
            f"WHERE shard = '{SHARD}' AND first = {self._rows()[at][0]}"
        )

    def version(self) -> int | None:
        rows = self.server.execute(f"SELECT version FROM {self.schema}.version")
        return int(rows[0][0])

    def put_version(self, version: int | None) -> None:
        self.server.execute(f"UPDATE {self.schema}.version SET version = {version}")
