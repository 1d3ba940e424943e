"""Object stores of the clouds, and servers that speak their protocols, through obstore."""

import asyncio
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING

import obstore
from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    NotFoundError,
    PermissionDeniedError,
    UnauthenticatedError,
)

from omnirelay.journal.backend import Durability
from omnirelay.model import limits
from omnirelay.model.errors import InvalidOption, OutcomeUnknown, Unavailable

if TYPE_CHECKING:
    from obstore.store import ObjectStore

PUT_S = 30.0
"""Longer than obstore's own tries take."""
GET_S = 30.0
_PARTS_AT_ONCE = 4
_STATUS = re.compile(r"status code: (\d{3})\b")


class CloudBucket:
    """`survives` is what the operator of a server of his own says of it; a provider's own service
    needs none."""

    def __init__(
        self, store: "ObjectStore", shown: str, *, name: str, endpoint: str | None, survives: str
    ) -> None:
        self.name = name
        self.shown = shown
        self._store = store
        self._endpoint = endpoint
        self._survives = survives
        self._is_tried = False

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except (PermissionDeniedError, UnauthenticatedError) as error:
            kind = type(error).__name__.removesuffix("Error")
            raise InvalidOption(f"{self.shown}: {kind}: correct the credentials") from error
        except (BaseError, OSError, TimeoutError) as error:
            raise Unavailable(f"{self.shown}{_reason(error)}") from error

    async def prepare(self, shard: str) -> None:
        """Many servers that speak a provider's protocol do not know put-if-absent and overwrite:
        on such a one two writers would both believe."""
        if self._is_tried:
            return
        key = "_probe/put-if-absent"
        with self._errors():
            async with asyncio.timeout(PUT_S):
                await obstore.put_async(self._store, key, b"probe")
        if await self.create(key, b"another"):
            raise InvalidOption(
                f"{self.shown}: this server overwrites where it was told to write only if nothing "
                f"is there, so it can hold neither journal nor archive: use another"
            )
        self._is_tried = True

    async def create(self, key: str, body: bytes) -> bool:
        try:
            async with asyncio.timeout(PUT_S):
                await obstore.put_async(self._store, key, body, mode="create")
        except AlreadyExistsError:
            return False
        except (PermissionDeniedError, UnauthenticatedError) as error:
            raise Unavailable(f"{self.shown} refuses to write: {said(error)}") from error
        except (BaseError, OSError, TimeoutError) as error:
            raise OutcomeUnknown(f"{self.shown} did not answer: {said(error)}") from error
        return True

    async def put(self, key: str, body: bytes) -> None:
        with self._errors():
            async with asyncio.timeout(PUT_S):
                await obstore.put_async(self._store, key, body)

    async def get(self, key: str) -> bytes | None:
        with self._errors():
            try:
                async with asyncio.timeout(GET_S):
                    found = await obstore.get_async(self._store, key)
                    return bytes(await found.bytes_async())
            except (NotFoundError, FileNotFoundError):
                return None

    async def put_large(self, key: str, file: IO[bytes], size: int) -> None:
        """Each part has as long as a whole object has otherwise."""
        part = limits.OBJECT_PART_BYTES
        with self._errors():
            async with asyncio.timeout(PUT_S * (1 + size // part)):
                await obstore.put_async(
                    self._store, key, file, chunk_size=part, max_concurrency=_PARTS_AT_ONCE
                )

    async def get_large(self, key: str, size: int) -> bytes | None:
        part = limits.OBJECT_PART_BYTES
        if size <= part:
            return await self.get(key)
        with self._errors():
            try:
                # How long it is now: a range behind the end would be taken for a fault of the way.
                found = await obstore.head_async(self._store, key)
            except (NotFoundError, FileNotFoundError):
                return None
            starts = range(0, min(size, found["size"]), part)
            room = asyncio.Semaphore(_PARTS_AT_ONCE)
            ends = [min(start + part, size, found["size"]) for start in starts]
            parts = [self._part(key, ends_at, room) for ends_at in zip(starts, ends, strict=True)]
            return b"".join(await asyncio.gather(*parts))

    async def _part(self, key: str, ends: tuple[int, int], room: asyncio.Semaphore) -> bytes:
        async with room, asyncio.timeout(GET_S):
            found = await obstore.get_range_async(self._store, key, start=ends[0], end=ends[1])
            return bytes(found)

    async def keys(self, prefix: str, after: str = "") -> list[str]:
        with self._errors():
            async with asyncio.timeout(GET_S):
                listing = obstore.list(self._store, prefix, offset=after or None)
                found = await listing.collect_async()
        return sorted(one["path"] for one in found)

    async def delete(self, keys: Sequence[str]) -> None:
        with self._errors():
            for start in range(0, len(keys), limits.OBJECT_FETCHES_MAX):
                some = keys[start : start + limits.OBJECT_FETCHES_MAX]
                await asyncio.gather(*(self._delete(key) for key in some))

    async def _delete(self, key: str) -> None:
        try:
            await obstore.delete_async(self._store, key)
        except (NotFoundError, FileNotFoundError):
            return

    async def durability(self) -> Durability:
        if self._endpoint is None:
            return Durability(
                True, True, True, "the provider answers once several of its machines have it"
            )
        is_told = bool(self._survives)
        words = f"as the address says of {self._endpoint}"
        if not is_told:
            words = (
                f"what {self._endpoint} survives, it does not tell: add ?survives=power_loss or "
                f"?survives=node_loss to the address if you know"
            )
        return Durability(True, is_told, self._survives == "node_loss", words)


def _reason(error: BaseException) -> str:
    """Where something is listed, a bucket that is missing or closed is to obstore like any other
    answer that it did not expect; a missing object was told apart before."""
    found = _STATUS.search(str(error))
    status = found[1] if found else ""
    if status == "404" or isinstance(error, NotFoundError | FileNotFoundError):
        return ": there is no such bucket: create it"
    if status in ("401", "403"):
        return " refuses to list what it has: correct the credentials"
    return f" does not answer: {said(error)}"


def said(error: BaseException) -> str:
    """The first line: what follows is obstore's inside, and could show a signed address."""
    lines = str(error).strip().splitlines()
    words = lines[0].partition(" - ")[2] or lines[0] if lines else ""
    return words[:200].partition("?")[0] or type(error).__name__
