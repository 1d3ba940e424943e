"""`GET /healthz` of a worker, for whoever restarts it. No more HTTP than that needs."""

import asyncio
from collections.abc import Callable

from omnirelay.model.errors import Unavailable

_HEAD_BYTES = 4096
_PATIENCE_S = 2.0


class Health:
    def __init__(self, is_healthy: Callable[[], bool]) -> None:
        self._is_healthy = is_healthy
        self._server: asyncio.Server | None = None

    @classmethod
    async def open(cls, port: int, is_healthy: Callable[[], bool]) -> "Health":
        health = cls(is_healthy)
        try:
            health._server = await asyncio.start_server(
                health._answer, "127.0.0.1", port, limit=_HEAD_BYTES
            )
        except OSError as error:
            raise Unavailable(f"cannot answer /healthz on port {port}: {error}") from error
        return health

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(_PATIENCE_S):
                head = await reader.readuntil(b"\r\n\r\n")
                writer.write(self._reply(head))
                await writer.drain()
        except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            return
        finally:
            writer.close()

    def _reply(self, head: bytes) -> bytes:
        if not head.startswith((b"GET /healthz ", b"GET / ")):
            return _reply("404 Not Found", "only GET /healthz")
        if self._is_healthy():
            return _reply("200 OK", "ok")
        return _reply("503 Service Unavailable", "the loop that takes work stands still")


def _reply(status: str, text: str) -> bytes:
    return (
        f"HTTP/1.1 {status}\r\ncontent-type: text/plain\r\ncontent-length: {len(text)}\r\n"
        f"connection: close\r\n\r\n{text}"
    ).encode()
