"""The stream transport's door: TCP, TLS or a Unix socket."""

import asyncio
import socket
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

from omnirelay.model import limits
from omnirelay.model.errors import InvalidOption, Unavailable
from omnirelay.model.ports import Clock
from omnirelay.rpc.dispatcher import Dispatcher
from omnirelay.rpc.meta import Certificate, Request
from omnirelay.rpc.procedure import Handler, Kind, Registry
from omnirelay.transports.per_address import PerAddress
from omnirelay.transports.stream_connection import Connection
from omnirelay.transports.stream_traffic import Traffic


class StreamInbound:
    name = "stream"

    def __init__(
        self,
        handler: Handler,
        registry: Registry,
        *,
        clock: Clock,
        host: str = "127.0.0.1",
        port: int = 0,
        path: Path | None = None,
        tls: ssl.SSLContext | None = None,
        read_certificate: Callable[[bytes], Certificate] | None = None,
        hello_s: float = 5.0,
        silence_s: float = 60.0,
        connections_max: int = limits.CONNECTIONS_MAX,
        held_bytes_max: int = 256 << 20,
        per_address: PerAddress | None = None,
    ) -> None:
        """With `path` it listens on a Unix socket instead, which needs no TLS. A connection that
        says no hello within `hello_s`, or is silent or does not read for `silence_s`, is closed.
        What all callers together make the node hold stays under `held_bytes_max`."""
        self.handler = handler
        self.prompt: Callable[[Request], Handler | None] = (
            handler.prompt if isinstance(handler, Dispatcher) else _never
        )
        self.clock = clock
        self.read_certificate = read_certificate
        self.kind_of: Callable[[str], Kind | None] = registry.kind_of
        self.hello_ms, self.silence_ms = round(hello_s * 1000), round(silence_s * 1000)
        self.traffic = Traffic(
            connections_max=connections_max, held_bytes_max=held_bytes_max, per_address=per_address
        )
        self._host, self._port, self._path = host, port, path
        self._tls = tls if path is None else None
        self._server: asyncio.Server | None = None
        self._keeping: asyncio.Task[None] | None = None

    @property
    def url(self) -> str:
        if self._path is not None:
            return f"stream+unix://{self._path}"
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"{'streams' if self._tls else 'stream'}://{host}:{self._port}"

    @property
    def connection_count(self) -> int:
        return len(self.traffic.members)

    @property
    def held_bytes(self) -> int:
        return self.traffic.held

    async def start(self) -> None:
        try:
            if self._path is None:
                self._server = await self._listen()
                self._port = self._server.sockets[0].getsockname()[1]
            else:
                self._server = await self._listen_at(self._path)
        except (ValueError, OverflowError) as error:
            raise InvalidOption(f"cannot listen on {self.url}: {error}") from error
        except OSError as error:
            # Python gives no number to an address that cannot be one, such as too long a path.
            kind = Unavailable if error.errno else InvalidOption
            raise kind(f"cannot listen on {self.url}: {error}") from error
        self.traffic.is_leaving = False
        self._keeping = asyncio.create_task(self._keep())

    async def _listen(self) -> asyncio.Server:
        loop = asyncio.get_running_loop()
        return await loop.create_server(
            lambda: Connection(self), self._host, self._port, backlog=1024, **self._handshake()
        )

    async def _listen_at(self, path: Path) -> asyncio.Server:
        loop = asyncio.get_running_loop()
        if await asyncio.to_thread(_is_served, path):
            # Without this, asyncio would take the path from whoever listens there.
            raise Unavailable(f"cannot listen on {self.url}: another process does")
        return await loop.create_unix_server(lambda: Connection(self), str(path), backlog=1024)

    def _handshake(self) -> dict[str, Any]:
        """Any: parameters of asyncio. A caller that stops in the middle of a handshake has no more
        time than one that says no hello."""
        if self._tls is None:
            return {}
        seconds = self.hello_ms / 1000
        return {
            "ssl": self._tls,
            "ssl_handshake_timeout": seconds,
            "ssl_shutdown_timeout": seconds,
        }

    async def stop(self, grace_s: float) -> None:
        if self._server is None:
            return
        self._server.close()
        self._server = None
        await self.traffic.end(grace_s)
        if self._path is not None:
            self._path.unlink(missing_ok=True)
        if self._keeping is not None:
            self._keeping.cancel()
            await asyncio.gather(self._keeping, return_exceptions=True)

    def reload_tls(self) -> None:
        return None  # its context is the node's, which hands new handshakes the new files

    async def _keep(self) -> None:
        while True:
            await asyncio.sleep(min(self.hello_ms / 2, self.silence_ms / 4) / 1000)
            self.traffic.sweep(self.clock.monotonic_ms())


def _never(request: Request) -> Handler | None:
    return None


def _is_served(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(str(path))
        except (FileNotFoundError, ConnectionRefusedError):
            return False
    return True
