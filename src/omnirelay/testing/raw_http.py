"""HTTP by hand: bytes out, parsed answers in. For what no well-behaved client will send."""

import asyncio
import ssl
from collections.abc import AsyncGenerator
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

import msgspec


class RawAnswer(msgspec.Struct, frozen=True):
    status: int
    headers: dict[str, str]
    """Names in lower case."""
    body: bytes

    def json(self) -> dict[str, object]:
        decoded: dict[str, object] = msgspec.json.decode(self.body, type=dict[str, object])
        return decoded


class RawHttp:
    """One connection. Every wait is bounded by `patience_s`."""

    def __init__(
        self, url: str, *, tls: ssl.SSLContext | None = None, patience_s: float = 8
    ) -> None:
        parts = urlsplit(url)
        self._host, self._port = parts.hostname, parts.port
        self._tls = tls
        self._patience_s = patience_s
        self._reader: asyncio.StreamReader
        self._writer: asyncio.StreamWriter

    async def __aenter__(self) -> Self:
        self._reader, self._writer = await asyncio.open_connection(
            self._host, self._port, ssl=self._tls, limit=1 << 24
        )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._writer.transport.abort()
        try:
            await self._writer.wait_closed()
        except (OSError, ssl.SSLError):
            return  # the other side was faster

    async def send(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    async def ask(self, method: str, path: str, body: bytes = b"", **headers: str) -> RawAnswer:
        """Header names are given with underscores for hyphens."""
        await self.send(request_of(method, path, body, **headers))
        return await self.answer(has_body=method != "HEAD")

    async def answer(self, *, has_body: bool = True) -> RawAnswer:
        """Raises EOFError if the connection ends first."""
        async with asyncio.timeout(self._patience_s):
            status, headers = await self._head()
            while status == 100:
                status, headers = await self._head()
            if not has_body or status == 204:
                return RawAnswer(status, headers, b"")
            if headers.get("transfer-encoding") == "chunked":
                body = b"".join([part async for part in self.chunks()])
            else:
                body = await self._reader.readexactly(int(headers["content-length"]))
            return RawAnswer(status, headers, body)

    async def head(self) -> RawAnswer:
        """Status and headers of an answer whose parts come one by one."""
        async with asyncio.timeout(self._patience_s):
            status, headers = await self._head()
            return RawAnswer(status, headers, b"")

    async def _head(self) -> tuple[int, dict[str, str]]:
        head = (await self._reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        first, *lines = head.rstrip().split("\r\n")
        pairs = (line.partition(":") for line in lines)
        return int(first.split(" ")[1]), {name.lower(): value.strip() for name, _, value in pairs}

    async def chunks(self) -> AsyncGenerator[bytes]:
        while chunk := await self.chunk():
            yield chunk

    async def chunk(self) -> bytes:
        """The next part; empty at the end."""
        async with asyncio.timeout(self._patience_s):
            size = int((await self._reader.readuntil(b"\r\n")).strip(), 16)
            return (await self._reader.readexactly(size + 2))[:-2]

    async def ending(self) -> bytes:
        """All that still comes before the other side closes. TimeoutError if it does not."""
        async with asyncio.timeout(self._patience_s):
            try:
                return await self._reader.read(-1)
            except (ConnectionResetError, ssl.SSLError):
                return b""

    def leave(self) -> None:
        """Close the socket as a process that ends does."""
        self._writer.close()


def request_of(method: str, path: str, body: bytes = b"", **headers: str) -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "host: test"]
    if body or method == "POST":
        lines.append(f"content-length: {len(body)}")
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + body
