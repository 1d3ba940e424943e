"""Flow control of one stream on a connection: as many messages under way as the reader allowed."""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable

from omnirelay.model import limits
from omnirelay.model.errors import InvalidArgument, OmniRelayError
from omnirelay.transports.stream_frames import CreditFrame

WINDOW = limits.STREAM_WINDOW_MESSAGES_MAX


class Outgoing:
    """The sending side: `take` before each message."""

    def __init__(self) -> None:
        self._credits = WINDOW
        self._waiting: asyncio.Future[None] | None = None

    async def take(self) -> None:
        while self._credits <= 0:
            self._waiting = asyncio.get_running_loop().create_future()
            await self._waiting
        self._credits -= 1

    def add(self, messages: int) -> None:
        if not 0 < messages <= WINDOW or self._credits + messages > WINDOW:
            raise InvalidArgument(f"{messages} more messages allowed, beyond the window {WINDOW}")
        self._credits += messages
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)


class Incoming:
    """The reading side: holds what came until it is read, and allows more as it is."""

    def __init__(self, call_id: int, send: Callable[[CreditFrame], None]) -> None:
        self._id = call_id
        self._send = send
        self._messages: deque[bytes] = deque()
        self._waiting: asyncio.Future[None] | None = None
        self._is_over = False
        self._error: OmniRelayError | None = None

    def put(self, body: bytes) -> None:
        if self._is_over or len(self._messages) >= WINDOW:
            raise InvalidArgument("a message beyond the window, or after the end, of its stream")
        self._messages.append(body)
        self._wake()

    def end(self, error: OmniRelayError | None = None) -> None:
        self._is_over = True
        self._error = self._error or error
        self._wake()

    def _wake(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    async def read(self) -> AsyncGenerator[bytes]:
        unsaid = 0
        while True:
            while self._messages:
                yield self._messages.popleft()
                unsaid += 1
                if unsaid >= WINDOW // 2 and not self._is_over:
                    self._send(CreditFrame(self._id, unsaid))
                    unsaid = 0
            if self._is_over:
                break
            self._waiting = asyncio.get_running_loop().create_future()
            await self._waiting
        if self._error is not None:
            raise self._error
