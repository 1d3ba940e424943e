"""One connection to PostgreSQL: opened on demand, bounded in time, and its errors in our words."""

import asyncio
import os
import re
import socket
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import msgspec
import psycopg
from psycopg import pq
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from omnirelay.model.errors import (
    DiskFull,
    InvalidOption,
    OmniRelayError,
    OutcomeUnknown,
    Unavailable,
)
from omnirelay.stores.address import masked, take_option

CONNECT_S = 5
ANSWER_S = 10.0
"""How long one statement may take; then the connection is cut and its outcome is unknown."""
DEFAULT_SCHEMA = "omnirelay"
_IDENTIFIER = re.compile(r"[a-z_][a-z0-9_]{0,62}")
_FULL = ("53100",)

Row = tuple[Any, ...]
"""Any: what a column holds, the statement that names it says."""


class PostgresTarget(msgspec.Struct, frozen=True):
    """Where a journal is kept. `shown` names it without its password."""

    conninfo: str
    schema: str
    shown: str

    @classmethod
    def parse(cls, url: str) -> "PostgresTarget":
        """`postgres://user@host:port/database?schema=…`; other options are libpq's own."""
        rest, schema = take_option(url, "schema")
        schema = DEFAULT_SCHEMA if schema is None else schema
        if not _IDENTIFIER.fullmatch(schema):
            raise InvalidOption(
                f"schema is {schema[:80]!r}, must be a lower-case letter, then letters, digits or _"
            )
        try:
            given = conninfo_to_dict(rest)
            if not re.fullmatch(r"[0-9,]*", str(given.get("port", ""))):
                raise psycopg.ProgrammingError("a port is a number")
        except (psycopg.Error, UnicodeError):  # its text would quote what it could not read
            raise InvalidOption(
                f"{masked(url)!r} is no PostgreSQL address: write "
                f"postgres://user@host:5432/database?schema=omnirelay"
            ) from None
        given.setdefault("connect_timeout", CONNECT_S)
        given.setdefault("application_name", "omnirelay")
        return cls(make_conninfo("", **given), schema, masked(url))


class PostgresLink:
    """Used on one loop. A connection that failed is not used again."""

    def __init__(self, target: PostgresTarget) -> None:
        self.target = target
        self._connection: psycopg.AsyncConnection[Row] | None = None
        self._opening = asyncio.Lock()
        self.warning: str | None = None
        """The server's last one, since somebody set this to None."""

    async def connect(self) -> psycopg.AsyncConnection[Row]:
        """Raises Unavailable, or InvalidOption if another try would end the same way."""
        async with self._opening:
            if self._connection is None or self._connection.closed:
                self._connection = await self._connected()
            return self._connection

    async def _connected(self) -> psycopg.AsyncConnection[Row]:
        try:
            # libpq's own timeout is for each address of a host; this one is for all of them.
            async with asyncio.timeout(2 * CONNECT_S):
                connection = await psycopg.AsyncConnection.connect(
                    self.target.conninfo, autocommit=True
                )
        except TimeoutError:
            raise Unavailable(f"{self.target.shown} does not answer") from None
        except (psycopg.Error, OSError) as error:
            raise self._unreachable(error) from None
        connection.add_notice_handler(self._notice)
        return connection

    def _unreachable(self, error: psycopg.Error | OSError) -> OmniRelayError:
        words = _words(error)
        if "authentication failed" in words or "no password supplied" in words:
            return InvalidOption(f"{self.target.shown} refuses us: {words}")
        if "does not exist" in words or "no pg_hba.conf entry" in words:
            return InvalidOption(f"{self.target.shown} cannot be used: {words}")
        return Unavailable(f"{self.target.shown} cannot be reached: {words}")

    def _notice(self, notice: psycopg.errors.Diagnostic) -> None:
        if notice.severity_nonlocalized == "WARNING":
            self.warning = notice.message_primary or "a warning"

    async def rows(
        self, sql: str, values: Sequence[object] = (), *, ours: bool = True
    ) -> list[Row]:
        """The answer to one statement, a transaction of its own. `ours`: seen often, and worth
        preparing."""
        async with self.session() as connection:
            return await fetch(connection, sql, values, prepare=ours)

    @asynccontextmanager
    async def session(self) -> AsyncIterator[psycopg.AsyncConnection[Row]]:
        """The connection, for as long as one answer may take. Raises what `translated` says."""
        connection = await self.connect()
        try:
            with _bounded(connection):
                yield connection
        except (psycopg.Error, OSError) as error:
            if connection.closed or connection.pgconn.status != pq.ConnStatus.OK:
                self.drop()
            raise self.translated(error) from error
        except asyncio.CancelledError:
            self.drop()  # whatever it was doing, it is not waited for
            raise

    def translated(self, error: psycopg.Error | OSError) -> OmniRelayError:
        """What is known after it. An ERROR has undone its statement; whatever ends a connection
        may have come before the commit or after."""
        state = getattr(error, "sqlstate", None) or ""
        words = f"{self.target.shown}: {_words(error)}"
        if state in _FULL:
            return DiskFull(f"{words}; free some room, the shard resumes by itself")
        severity = error.diag.severity_nonlocalized if isinstance(error, psycopg.Error) else None
        if severity == "ERROR" and not state.startswith("57P"):
            return Unavailable(f"nothing was changed: {words}")
        return OutcomeUnknown(words)

    def drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None and not connection.closed:
            connection.pgconn.finish()

    async def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()


async def fetch(
    connection: psycopg.AsyncConnection[Row],
    sql: str,
    values: Sequence[object] = (),
    *,
    prepare: bool = False,
) -> list[Row]:
    """Of statements of ours alone: what is not ours goes in as a value."""
    cursor = connection.cursor(binary=True)
    await cursor.execute(sql.encode(), values or None, prepare=prepare or None)
    return await cursor.fetchall() if cursor.description else []


@contextmanager
def _bounded(connection: psycopg.AsyncConnection[Row]) -> Iterator[None]:
    """Cuts the line when time is up, which ends whatever waits for it. To cancel instead would ask
    a server that does not answer, and wait for its answer."""
    timer = asyncio.get_running_loop().call_later(ANSWER_S, _hang_up, connection)
    try:
        yield
    finally:
        timer.cancel()


def _hang_up(connection: psycopg.AsyncConnection[Row]) -> None:
    if connection.closed:
        return
    with socket.socket(fileno=os.dup(connection.fileno())) as line:
        line.shutdown(socket.SHUT_RDWR)


def _words(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__
