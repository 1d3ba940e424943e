"""The stream transport's door: TCP, TLS or a Unix socket."""

import asyncio
import ssl
from collections.abc import Callable
from pathlib import Path

from omnirelay.model import limits
from omnirelay.model.errors import InvalidOption, Unavailable
from omnirelay.model.ports import Clock
from omnirelay.rpc.meta import Certificate
from omnirelay.rpc.procedure import Handler, Kind, Registry
from omnirelay.transports.stream_connection import Connection
from omnirelay.transports.stream_frames import Ping

_SENDING = (Kind.CLIENT_STREAM, Kind.DUPLEX)


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
    ) -> None:
        """With `path` it listens on a Unix socket instead of host and port. A connection that says
        no hello within `hello_s`, or is silent or does not read for `silence_s`, is closed."""
        self.handler = handler
        self.clock = clock
        self.read_certificate = read_certificate
        self._registry = registry
        self._host, self._port, self._path, self._tls = host, port, path, tls
        self._hello_ms, self._silence_ms = round(hello_s * 1000), round(silence_s * 1000)
        self._connections: set[Connection] = set()
        self._server: asyncio.Server | None = None
        self._keeping: asyncio.Task[None] | None = None
        self._pings = 0

    @property
    def url(self) -> str:
        if self._path is not None:
            return f"stream+unix://{self._path}"
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"{'streams' if self._tls else 'stream'}://{host}:{self._port}"

    @property
    def connection_count(self) -> int:
        return len(self._connections)

    async def start(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            if self._path is not None:
                self._server = await loop.create_unix_server(
                    self._connection, str(self._path), ssl=self._tls
                )
            else:
                self._server = await loop.create_server(
                    self._connection, self._host, self._port, ssl=self._tls, backlog=1024
                )
                self._port = self._server.sockets[0].getsockname()[1]
        except OSError as error:
            raise Unavailable(f"cannot listen on {self.url}: {error}") from error
        except (ValueError, OverflowError) as error:
            raise InvalidOption(f"cannot listen on {self.url}: {error}") from error
        self._keeping = asyncio.create_task(self._keep())

    async def stop(self, grace_s: float) -> None:
        if self._server is None:
            return
        self._server.close()
        self._server = None
        for connection in self._connections:
            connection.leave()
        busy = [asyncio.ensure_future(one.quiet.wait()) for one in self._connections]
        if busy:
            _, late = await asyncio.wait(busy, timeout=grace_s)
            for waiting in late:
                waiting.cancel()
        await asyncio.sleep(0)  # the last answers are written at the end of this turn
        for connection in list(self._connections):
            connection.abort()
        if self._keeping is not None:
            self._keeping.cancel()
            await asyncio.gather(self._keeping, return_exceptions=True)

    def reload_tls(self) -> None:
        return None  # its context is the node's, which hands new handshakes the new files

    def _connection(self) -> Connection:
        return Connection(self)

    def takes_stream(self, procedure: str) -> bool:
        return self._registry.kind_of(procedure) in _SENDING

    def admit(self, connection: Connection) -> bool:
        if len(self._connections) >= limits.CONNECTIONS_MAX:
            return False
        self._connections.add(connection)
        return True

    def forget(self, connection: Connection) -> None:
        self._connections.discard(connection)

    async def _keep(self) -> None:
        """Half-open connections and callers that never read are found and closed."""
        pause_s = min(self._hello_ms, self._silence_ms / 4) / 1000
        while True:
            await asyncio.sleep(pause_s)
            self._pings += 1
            now = self.clock.monotonic_ms()
            for connection in list(self._connections):
                self._look_at(connection, now)

    def _look_at(self, connection: Connection, now: int) -> None:
        silent_ms = now - connection.heard_ms
        stuck = connection.stuck_since_ms
        if stuck is not None:
            if now - stuck > self._silence_ms:
                connection.cut()
        elif silent_ms > (self._silence_ms if connection.is_greeted else self._hello_ms):
            connection.abort(Unavailable("nothing was heard for too long"))
        elif connection.is_greeted and silent_ms > self._silence_ms / 3:
            connection.send(Ping(self._pings))
