"""A prefix of its own in an object store, and its objects behind the store's back."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar

from omnirelay.journal.backend import JournalTarget
from omnirelay.stores.objects import ObjectJournal
from omnirelay.stores.objects_address import open_bucket
from omnirelay.stores.objects_layout import Layout, numbers
from omnirelay.testing.store_suite import SHARD, Medium

if TYPE_CHECKING:
    from collections.abc import Coroutine

T = TypeVar("T")


def aside(work: "Coroutine[Any, Any, T]") -> T:
    """On another thread: the caller's has a loop that runs."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, work).result()


class ObjectStorage(Medium):
    notices_lost_tail = False
    named_no_version = True

    def __init__(self, url: str) -> None:
        self.bucket = open_bucket(url)
        self._layout = Layout(SHARD)

    def handle(self, shard: str = SHARD) -> JournalTarget:
        return ObjectJournal(self.bucket, shard)

    def bodies(self) -> list[bytes]:
        found = [aside(self.bucket.get(key)) for key in self._keys()]
        return [body for body in found if body is not None]

    def put_body(self, at: int, body: bytes) -> None:
        aside(self.bucket.put(self._keys()[at], body))

    def drop(self, at: int) -> None:
        aside(self.bucket.delete([self._keys()[at]]))

    def _keys(self) -> list[str]:
        return aside(self.bucket.keys(self._layout.envelopes))

    def version(self) -> int | None:
        found = aside(self.bucket.keys(self._layout.versions))
        return max((numbers(key)[0] for key in found), default=None)

    def put_version(self, version: int | None) -> None:
        aside(self.bucket.delete(aside(self.bucket.keys(self._layout.versions))))
        for number in range(1, (version or 0) + 1):
            aside(self.bucket.put(self._layout.version(number), b""))
