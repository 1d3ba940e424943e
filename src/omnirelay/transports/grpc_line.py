"""The caller's channel of gRPC, which cannot be given other credentials: with new ones comes a new
channel."""

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import grpc
import grpc.aio

from omnirelay.model import limits
from omnirelay.transports.grpc_loop import lasting_loop
from omnirelay.transports.grpc_tls import TlsSource, channel_credentials

if TYPE_CHECKING:
    from omnirelay.transports.client_tls import Pem

LEAVE_S: Final = 30.0
"""How long calls under way may stay on a channel with credentials that were replaced."""

Unary = grpc.aio.UnaryUnaryMultiCallable[Any, Any]
"""Any: bytes both ways."""


class Line:
    def __init__(
        self, target: str, options: Sequence[tuple[str, int | str]], tls: TlsSource | None
    ) -> None:
        """`tls` is asked with every call, and must be quick to say that nothing is new."""
        self._target = target
        self._options = tuple(options)
        self._tls = tls
        self._pem: Pem | None = None
        self._channel: grpc.aio.Channel | None = None
        # Made once a path, since making one costs more than a small call.
        self._unary: dict[str, Unary] = {}
        self._leaving: dict[asyncio.Task[None], grpc.aio.Channel] = {}

    @property
    def is_open(self) -> bool:
        return self._channel is not None

    def open(self) -> None:
        if self._channel is None:
            self._pem = None if self._tls is None else self._tls()
            self._channel = self._made()

    async def close(self) -> None:
        """Cuts off what is under way."""
        channels = [*self._leaving.values(), self._channel]
        for leaving in self._leaving:
            leaving.cancel()
        self._channel = None
        self._unary.clear()
        for channel in channels:
            if channel is not None:
                await channel.close()

    def channel(self) -> grpc.aio.Channel:
        assert self._channel is not None
        if self._tls is not None and (pem := self._tls()) != self._pem:
            self._pem = pem
            self._see_off(self._channel)
            self._unary.clear()
            self._channel = self._made()
        return self._channel

    def unary(self, path: str) -> Unary:
        channel = self.channel()
        multi = self._unary.get(path)
        if multi is None:
            if len(self._unary) >= limits.CALLS_PER_CONNECTION_MAX:
                self._unary.clear()
            multi = self._unary[path] = channel.unary_unary(path)
        return multi

    def _made(self) -> grpc.aio.Channel:
        credentials = None if self._pem is None else channel_credentials(self._pem)
        with lasting_loop():
            if credentials is None:
                return grpc.aio.insecure_channel(self._target, self._options)
            return grpc.aio.secure_channel(self._target, credentials, self._options)

    def _see_off(self, channel: grpc.aio.Channel) -> None:
        leaving = asyncio.create_task(channel.close(LEAVE_S))
        self._leaving[leaving] = channel
        leaving.add_done_callback(lambda done: self._leaving.pop(done, None))
