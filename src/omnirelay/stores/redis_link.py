"""A client of one Redis or Valkey server that sends everything once; its errors in our words."""

import asyncio
import re
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar
from urllib.parse import unquote, urlsplit

import msgspec
import redis.exceptions as failed
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from omnirelay.model.errors import (
    DiskFull,
    InvalidOption,
    OmniRelayError,
    OutcomeUnknown,
    Unavailable,
)
from omnirelay.stores.address import masked, take_option

CONNECT_S = 5.0
ANSWER_S = 10.0
"""How long one command may take; then the line is cut and its outcome is unknown."""
CONNECTIONS = 4
"""A waiting reader holds one, and the rest of its calls another."""
DEFAULT_PREFIX = "omnirelay"
_PREFIX = re.compile(r"[A-Za-z0-9_.:-]{1,200}")

T = TypeVar("T")


class RedisTarget(msgspec.Struct, frozen=True):
    """Where a journal is kept. `shown` names it without its password."""

    host: str
    port: int
    db: int
    prefix: str
    shown: str
    username: str | None
    password: str | None
    is_secure: bool

    @classmethod
    def parse(cls, url: str) -> "RedisTarget":
        """`redis://user:password@host:port/db?prefix=…`, or `rediss://` for TLS."""
        rest, prefix = take_option(url, "prefix")
        prefix = DEFAULT_PREFIX if prefix is None else prefix
        if not _PREFIX.fullmatch(prefix):
            raise InvalidOption(
                f"prefix is {prefix[:80]!r}, must be letters, digits and _ . : - alone"
            )
        parts = urlsplit(rest)
        try:
            place = (parts.hostname, parts.port or 6379, int(parts.path.strip("/") or 0))
        except ValueError:
            place = (None, 0, 0)
        if not place[0] or parts.query or parts.fragment or place[2] < 0:
            raise InvalidOption(
                f"{masked(url)!r} is no Redis address: write redis://host:6379/0?prefix=omnirelay"
            )
        return cls(
            unquote(place[0]),
            place[1],
            place[2],
            prefix,
            masked(url),
            unquote(parts.username) if parts.username else None,
            unquote(parts.password) if parts.password else None,
            parts.scheme.lower() == "rediss",
        )

    def client(self) -> Any:
        """Any: the client is generic in its stubs and plain in its code."""
        return Redis(
            host=self.host,
            port=self.port,
            db=self.db,
            username=self.username,
            password=self.password,
            ssl=self.is_secure,
            protocol=2,
            socket_connect_timeout=CONNECT_S,
            socket_timeout=ANSWER_S,
            # Never again by itself: an append that was sent twice is one whose answer is a lie.
            retry=Retry(NoBackoff(), 0),
            max_connections=CONNECTIONS,
        )


class RedisLink:
    """Used on one loop. After a failure the next call connects again."""

    def __init__(self, target: RedisTarget) -> None:
        self.target = target
        self._client: Any = None
        """Any: see `RedisTarget.client`."""

    async def ask(self, work: Callable[[Any], Awaitable[T]]) -> T:
        """What the server answers to `work(client)`. Any: see `RedisTarget.client`."""
        if self._client is None:
            self._client = self.target.client()
        try:
            return await work(self._client)
        except (failed.RedisError, OSError) as error:
            raise self.translated(error) from None

    def translated(self, error: Exception) -> OmniRelayError:
        """What is known after it. A server that says no has done nothing; one that says nothing
        may have done it."""
        words = f"{self.target.shown}: {' '.join(str(error).split()) or type(error).__name__}"
        if isinstance(error, failed.AuthenticationError | failed.AuthorizationError):
            return InvalidOption(f"it refuses us: {words}")
        if isinstance(error, failed.OutOfMemoryError) or "No space left" in words:
            return DiskFull(f"{words}; make room, the shard resumes by itself")
        if isinstance(error, failed.ResponseError | failed.BusyLoadingError):
            return Unavailable(f"nothing was changed: {words}")
        if "connecting to" in words:
            return Unavailable(f"it cannot be reached: {words}")
        return OutcomeUnknown(words)

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()


async def sleep_until(until: float, at_most_s: float) -> None:
    left_s = until - asyncio.get_running_loop().time()
    await asyncio.sleep(max(0.0, min(left_s, at_most_s)))
