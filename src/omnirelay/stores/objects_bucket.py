"""What an object store must do for a journal."""

import asyncio
from collections.abc import Sequence
from typing import IO, Protocol

from omnirelay.journal.backend import Durability
from omnirelay.model import limits


class Bucket(Protocol):
    """Keys are relative to the address. Whole objects only; nobody sees half of one."""

    name: str
    shown: str
    """The address, without secrets."""

    async def prepare(self, shard: str) -> None:
        """Make ready for objects of this shard. Raises InvalidOption if this cannot hold any."""

    async def create(self, key: str, body: bytes) -> bool:
        """False: something is there already, and stays. Raises OutcomeUnknown if it cannot tell,
        DiskFull if there is no room."""

    async def put(self, key: str, body: bytes) -> None: ...

    async def get(self, key: str) -> bytes | None: ...

    async def keys(self, prefix: str, after: str = "") -> list[str]:
        """Every key that begins with `prefix` (which ends with a slash) and comes after `after`,
        in order."""

    async def delete(self, keys: Sequence[str]) -> None:
        """Those that are there, the first ones first, a few at a time."""

    async def durability(self) -> Durability: ...


class LargeBucket(Bucket, Protocol):
    """One that also takes what is too large for one request."""

    async def put_large(self, key: str, file: IO[bytes], size: int) -> None:
        """From here to the end of the file; over what is there."""

    async def get_large(self, key: str, size: int) -> bytes | None:
        """At most so many bytes; None if there is no such object."""


async def get_all(bucket: Bucket, keys: Sequence[str]) -> list[bytes | None]:
    """Several at the same time, but never more than a few."""
    found: list[bytes | None] = []
    for start in range(0, len(keys), limits.OBJECT_FETCHES_MAX):
        some = keys[start : start + limits.OBJECT_FETCHES_MAX]
        found += await asyncio.gather(*(bucket.get(key) for key in some))
    return found
