"""Keeps a gRPC server listening, come what may over the wire."""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

import grpc
import grpc.aio

from omnirelay.model.errors import Unavailable

log = logging.getLogger(__name__)

_LOOK_S: Final = 0.25
_AGAIN_S: Final = 0.05
_LEAVE_S: Final = 30.0


class Listener:
    """grpcio's server ends when a caller names a method that is not UTF-8: one frame from anybody,
    and nobody is served. What was under way then still finishes; this one notices, and listens
    again at the same place.
    """

    def __init__(
        self,
        host: str,
        build: Callable[[], grpc.aio.Server],
        credentials: Callable[[], grpc.ServerCredentials | None],
    ) -> None:
        self._host = f"[{host}]" if ":" in host else host
        self._build = build
        self._credentials = credentials
        self._server: grpc.aio.Server | None = None
        self._keeper: asyncio.Task[None] | None = None
        self._leaving: dict[asyncio.Task[None], grpc.aio.Server] = {}

    async def start(self, port: int) -> int:
        """The port it got. Raises Unavailable if the address is taken or not ours."""
        self._server, port = await self._open(port)
        self._keeper = asyncio.create_task(self._keep(self._server, port))
        return port

    async def stop(self, grace_s: float) -> None:
        if self._keeper is None:
            return
        self._keeper.cancel()
        await asyncio.gather(self._keeper, return_exceptions=True)
        self._keeper = None
        assert self._server is not None
        ending = [self._server, *self._leaving.values()]
        await asyncio.gather(*(server.stop(grace_s) for server in ending), *self._leaving)

    async def _open(self, port: int) -> tuple[grpc.aio.Server, int]:
        server = self._build()
        address = f"{self._host}:{port}"
        credentials = self._credentials()
        try:
            if credentials is None:
                port = server.add_insecure_port(address)
            else:
                port = server.add_secure_port(address, credentials)
        except RuntimeError:
            raise Unavailable(f"cannot listen on {address}: it is taken or not ours") from None
        try:
            await server.start()
        except asyncio.CancelledError:
            await server.stop(0)
            raise
        return server, port

    async def _keep(self, server: grpc.aio.Server, port: int) -> None:
        while True:
            try:
                await server.wait_for_termination(_LOOK_S)
            except Exception as crash:
                log.error("the gRPC listener broke (%r) and listens again", crash)
                self._see_off(server)
                self._server = server = await self._open_again(port)

    async def _open_again(self, port: int) -> grpc.aio.Server:
        while True:
            try:
                server, _ = await self._open(port)
            except Unavailable:
                await asyncio.sleep(_AGAIN_S)  # the broken one has not let go of the port yet
            else:
                return server

    def _see_off(self, server: grpc.aio.Server) -> None:
        """Let its calls finish, then free what it holds."""
        leaving = asyncio.create_task(server.stop(_LEAVE_S))
        self._leaving[leaving] = server
        leaving.add_done_callback(lambda done: self._leaving.pop(done, None))
