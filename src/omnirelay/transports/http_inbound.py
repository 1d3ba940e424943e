"""Calls over HTTP/1.1, and whatever pages a node has beside them."""

import asyncio
import errno
import ssl
from collections.abc import Mapping

from omnirelay.model.errors import InvalidOption, Unavailable
from omnirelay.model.ports import Clock
from omnirelay.rpc.procedure import Handler, Registry
from omnirelay.transports.http_calls import NAME, HttpCalls
from omnirelay.transports.http_connection import Connection, ReadCertificate
from omnirelay.transports.http_docs import Description
from omnirelay.transports.http_options import HttpOptions
from omnirelay.transports.http_pages import Page, Pages
from omnirelay.transports.http_traffic import Traffic
from omnirelay.transports.per_address import PerAddress


class HttpInbound:
    """`POST /v1/{namespace}/{verb}` or `POST /` with `Rpc-Procedure`. The kind of the procedure
    says how: a body, lines of JSON, or an event stream."""

    def __init__(
        self,
        handler: Handler,
        registry: Registry,
        *,
        clock: Clock,
        host: str = "127.0.0.1",
        port: int = 0,
        tls: ssl.SSLContext | None = None,
        read_certificate: ReadCertificate | None = None,
        pages: Mapping[str, Page] | None = None,
        version: str = "1",
        options: HttpOptions | None = None,
        per_address: PerAddress | None = None,
        name: str = NAME,
    ) -> None:
        """`name` is what a node with several of them calls this one. A client certificate that
        `tls` has verified is read by `read_certificate`: whom it proves is no matter of wires.
        `/openapi.json` and `/docs` are there without being named in `pages`; `version` is what they
        call themselves."""
        self.name = name
        self._host = host
        self._port = port
        self._tls = tls
        self._read_certificate = read_certificate
        self._options = options or HttpOptions()
        self._traffic = Traffic(self._options, clock, per_address)
        described = Description(registry, title="OmniRelay", version=version)
        shown = {**described.pages(), **(pages or {})}
        self._calls = HttpCalls(handler, registry, Pages(shown), self._traffic, clock)
        self._server: asyncio.Server | None = None
        self._sweeper: asyncio.Task[None] | None = None

    @property
    def url(self) -> str:
        scheme = "http" if self._tls is None else "https"
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"{scheme}://{host}:{self._port}"

    @property
    def connection_count(self) -> int:
        return len(self._traffic.connections)

    async def start(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            self._server = await loop.create_server(
                self._connection,
                self._host,
                self._port,
                ssl=self._tls,
                ssl_handshake_timeout=self._options.head_s if self._tls else None,
                backlog=1024,
            )
        except (OSError, OverflowError) as error:
            raise self._cannot_listen(error) from None
        self._port = self._server.sockets[0].getsockname()[1]
        self._sweeper = loop.create_task(self._traffic.sweep())

    def reload_tls(self) -> None:
        return None  # its context is the node's, which hands new handshakes the new files

    def _connection(self) -> Connection:
        return Connection(self._traffic, self._calls.answer, self._read_certificate)

    def _cannot_listen(self, error: OSError | OverflowError) -> Unavailable | InvalidOption:
        where = f"{self._host}:{self._port}"
        if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
            return Unavailable(f"{where} is taken by another process: choose another port")
        return InvalidOption(f"cannot listen on {where}: {error}")

    async def stop(self, grace_s: float) -> None:
        server, self._server = self._server, None
        if server is None:
            return
        server.close()
        await self._traffic.drain(grace_s)
        assert self._sweeper is not None
        self._sweeper.cancel()
        await asyncio.wait([self._sweeper])
