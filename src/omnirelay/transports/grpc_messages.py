"""The caller's end of a gRPC stream."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from types import TracebackType
from typing import Any

import grpc
import grpc.aio

from omnirelay.model.errors import OutcomeUnknown
from omnirelay.rpc.meta import Request
from omnirelay.transports.grpc_errors import refusal_of


def raise_if_cut_off() -> None:
    """gRPC cancels whoever waits for a call when the channel closes. That is not the waiting
    task's own end, and must not look like it."""
    task = asyncio.current_task()
    if task is None or task.cancelling() == 0:
        raise OutcomeUnknown("the connection was stopped while the call was under way")


class Messages(AsyncGenerator[bytes, None]):
    """What the other side sends, while what the caller says goes up beside it. A class and not a
    generator function: one that was never asked for a message must end the call too."""

    def __init__(
        self,
        channel: grpc.aio.Channel,
        path: str,
        request: Request,
        *,
        timeout_s: float | None,
        metadata: tuple[tuple[str, str], ...],
    ) -> None:
        self._failure: Exception | None = None
        self._pump: asyncio.Task[None] | None = None
        # Any: bytes both ways, and one of two kinds of call.
        self._call: Any
        if request.inbound is None:
            many: grpc.aio.UnaryStreamMultiCallable[Any, Any] = channel.unary_stream(path)
            self._call = many(request.body, timeout=timeout_s, metadata=metadata)
        else:
            duplex: grpc.aio.StreamStreamMultiCallable[Any, Any] = channel.stream_stream(path)
            self._call = duplex(timeout=timeout_s, metadata=metadata)
            self._pump = asyncio.create_task(self._say(request.inbound))

    async def opening(self) -> list[tuple[str, str | bytes]]:
        """The metadata the answers began with; empty for one that was refused."""
        try:
            return list(await self._call.initial_metadata())
        except asyncio.CancelledError:
            await self._raise_why_cancelled()
            raise

    async def only(self) -> bytes | None:
        """The one answer of a call that turns out to have one. None: it ended well without."""
        return await anext(self, None)

    async def trailers(self) -> Any:
        try:
            return await self._call.trailing_metadata()
        finally:
            await self.aclose()

    async def asend(self, value: None) -> bytes:  # codespell:ignore asend
        try:
            message = await self._call.read()
        except grpc.aio.AioRpcError:
            message = grpc.aio.EOF  # the status says why
        except asyncio.CancelledError:
            await self._raise_why_cancelled()
            raise
        if message is not grpc.aio.EOF:
            assert isinstance(message, bytes)
            return message
        await self._raise_refusal()
        await self.aclose()
        raise StopAsyncIteration

    async def athrow(
        self,
        typ: type[BaseException] | BaseException,
        val: BaseException | object = None,
        tb: TracebackType | None = None,
        /,
    ) -> bytes:
        await self.aclose()
        raise typ if isinstance(typ, BaseException) else typ()

    async def aclose(self) -> None:
        self._call.cancel()
        if self._pump is not None and not self._pump.done():
            self._pump.cancel()

    async def _raise_refusal(self) -> None:
        code = await self._call.code()
        if code is grpc.StatusCode.OK:
            return
        details, trailers = await self._call.details(), await self._call.trailing_metadata()
        await self.aclose()
        self._raise_own_failure()
        raise refusal_of(code, details, trailers)

    async def _raise_why_cancelled(self) -> None:
        """Returns if it was this task that somebody cancelled."""
        await self.aclose()
        self._raise_own_failure()
        raise_if_cut_off()

    def _raise_own_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    async def _say(self, messages: AsyncIterator[bytes]) -> None:
        try:
            async for message in messages:
                await self._call.write(message)
            await self._call.done_writing()
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
            pass  # the call is over, and its reader hears why
        except Exception as failure:
            # The caller's own iterator broke: whoever reads the answers must hear that.
            self._failure = failure
            self._call.cancel()
