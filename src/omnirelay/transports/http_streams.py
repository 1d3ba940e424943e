"""Answers that come message by message: event streams, or one JSON text a line."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

import msgspec

from omnirelay.model.errors import Closed, OmniRelayError
from omnirelay.rpc.status import body_of
from omnirelay.transports.http_events import COMMENT, ERROR, event_of
from omnirelay.transports.http_exchange import Exchange

FIRST_S = 0.1
"""How long the status waits for the first message: an error that comes at once is then an error of
the whole call, and a stream with nothing to say still begins."""
_FLUSH_BYTES = 64 << 10

Framing = Callable[[bytes], bytes]


def line_of(message: bytes) -> bytes:
    return message + b"\n"


class StreamReply:
    """Messages that are ready together leave together; each waits for a slow reader."""

    def __init__(self, exchange: Exchange, head: bytes, framing: Framing) -> None:
        self._exchange = exchange
        self._head = head
        self._framing = framing
        self._loop = asyncio.get_running_loop()
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0
        self._flush: asyncio.Handle | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._wrote_at = self._loop.time()

    async def run(self, messages: AsyncGenerator[bytes]) -> None:
        """Raises what the first message raises, as long as nothing was sent."""
        self._timer = self._loop.call_later(FIRST_S, self._begin)
        try:
            async with aclosing(messages):
                await self._pump(messages)
            self._begin()
            self._write()
            self._exchange.finish()
        except OmniRelayError as error:
            self._write()
            if not self._exchange.is_begun:
                raise
            self._end_with(error)
        except asyncio.CancelledError:
            # The node stops, or the caller is gone; only the former can be told.
            if self._exchange.is_begun:
                self._end_with(Closed("the node is stopping: resume elsewhere or later"))
            raise
        finally:
            self._timer.cancel()
            if self._flush is not None:
                self._flush.cancel()

    async def _pump(self, messages: AsyncGenerator[bytes]) -> None:
        async for message in messages:
            framed = self._framing(message)
            self._waiting.append(framed)
            self._waiting_bytes += len(framed)
            if self._waiting_bytes >= _FLUSH_BYTES:
                self._write()
                await asyncio.sleep(0)  # a source that never waits must let others in
            elif self._flush is None:
                # Runs when the source waits for its next message.
                self._flush = self._loop.call_soon(self._write)
            await self._exchange.wire.drained()

    def _begin(self) -> None:
        if not self._exchange.is_begun:
            self._exchange.begin(200, self._head)
            self._tick()

    def _tick(self) -> None:
        """A comment after every silence, so that neither side takes the other for dead."""
        assert self._timer is not None
        self._timer.cancel()
        if self._framing is line_of:
            return
        every_s = self._exchange.wire.options.comment_s
        due = self._wrote_at + every_s
        if self._loop.time() >= due and not self._exchange.is_answered:
            self._exchange.send(COMMENT)
            self._wrote_at = self._loop.time()
            due = self._wrote_at + every_s
        self._timer = self._loop.call_at(due, self._tick)

    def _write(self) -> None:
        if self._flush is not None:
            self._flush.cancel()
            self._flush = None
        if self._waiting and not self._exchange.is_answered:
            self._begin()
            self._exchange.send(b"".join(self._waiting))
            self._wrote_at = self._loop.time()
        self._waiting.clear()
        self._waiting_bytes = 0

    def _end_with(self, error: OmniRelayError) -> None:
        self._write()  # whatever was ready came before
        body = msgspec.json.encode(body_of(error))
        is_lines = self._framing is line_of
        last = b'{"error":%b}\n' % body if is_lines else event_of(body, name=ERROR)
        self._exchange.send(last)
        self._exchange.finish()
