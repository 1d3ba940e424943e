"""A TCP proxy that can swallow what the server says, and cut every connection."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit


class Proxy:
    """While it holds back, requests still reach the server: so a test can lose exactly a reply."""

    def __init__(self, target: str) -> None:
        parts = urlsplit(target)
        self._scheme, self._host, self._port = parts.scheme, parts.hostname, parts.port
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._is_holding = False
        self.cuts = 0
        self.delay_s = 0.0
        """How long a connection takes."""

    @property
    def url(self) -> str:
        assert self._server is not None
        host, port = self._server.sockets[0].getsockname()[:2]
        return f"{self._scheme}://{host}:{port}"

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)

    def hold_back(self) -> None:
        """From now on nothing the server says arrives."""
        self._is_holding = True

    def cut(self) -> None:
        """Close every connection; new ones work again."""
        self.cuts += 1
        self._is_holding = False
        for writer in list(self._writers):
            writer.transport.abort()

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        self.cut()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(self.delay_s)
        try:
            from_server, to_server = await asyncio.open_connection(self._host, self._port)
        except OSError:
            writer.transport.abort()
            return
        both = {writer, to_server}
        self._writers |= both
        try:
            await asyncio.gather(
                self._carry(reader, to_server, is_reply=False),
                self._carry(from_server, writer, is_reply=True),
            )
        finally:
            self._writers -= both
            for one in both:
                one.transport.abort()

    async def _carry(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, is_reply: bool
    ) -> None:
        try:
            while data := await reader.read(65_536):
                if not (is_reply and self._is_holding):
                    writer.write(data)
                    await writer.drain()
            writer.close()
        except OSError:
            writer.transport.abort()


@asynccontextmanager
async def proxied(target: str) -> AsyncIterator[Proxy]:
    proxy = Proxy(target)
    await proxy.start()
    try:
        yield proxy
    finally:
        await proxy.stop()
