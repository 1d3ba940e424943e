"""Keys of a real Valkey as storage for the suite, and their bytes behind the store's back."""

import itertools
import os

from omnirelay.journal.backend import JournalTarget
from omnirelay.stores.redis import RedisJournal
from omnirelay.stores.redis_keys import Keys
from omnirelay.stores.redis_link import RedisTarget
from omnirelay.testing.servers_valkey import ValkeyServer
from omnirelay.testing.store_suite import SHARD, Medium

_numbers = itertools.count()


def fresh_prefix() -> str:
    return f"p{os.getpid()}.{next(_numbers)}"


class RedisStorage(Medium):
    named_no_version = True

    def __init__(self, server: ValkeyServer) -> None:
        self.server = server
        self.prefix = fresh_prefix()
        self.url = server.url(self.prefix)
        self.keys = Keys(self.prefix, SHARD)

    def handle(self, shard: str = SHARD) -> JournalTarget:
        return RedisJournal(RedisTarget.parse(self.url), shard)

    def bodies(self) -> list[bytes]:
        with self.server.client() as client:
            return [fields[b"body"] for _, fields in client.xrange(self.keys.log)]

    def put_body(self, at: int, body: bytes) -> None:
        """An entry cannot be changed, so the stream is written again."""
        with self.server.client() as client:
            entries = client.xrange(self.keys.log)
            entries[at][1][b"body"] = body
            client.delete(self.keys.log)
            for one, fields in entries:
                client.xadd(self.keys.log, fields, id=one)

    def drop(self, at: int) -> None:
        with self.server.client() as client:
            one = client.xrange(self.keys.log)[at][0]
            client.xdel(self.keys.log, one)
            client.xdel(self.keys.index, one)

    def version(self) -> int | None:
        with self.server.client() as client:
            found = client.hget(self.keys.head, "version")
        return None if found is None else int(found)

    def put_version(self, version: int | None) -> None:
        with self.server.client() as client:
            client.hdel(self.keys.head, "version")
            if version is not None:
                client.hset(self.keys.head, "version", version)
