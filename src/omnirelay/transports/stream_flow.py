"""Flow control of one stream on a connection: as much under way as the reader allowed.

Both sides count the same: a window of messages and of bytes is open when a stream begins, each
message takes from it, and what has been read is granted again. A message may be sent while at least
one message and one byte are left, so that one larger than the rest of the window cannot get stuck.
"""

import asyncio
from collections import deque
from collections.abc import Callable

from omnirelay.model import limits
from omnirelay.model.errors import InvalidArgument
from omnirelay.transports.stream_frames import CreditFrame

WINDOW_MESSAGES = limits.STREAM_WINDOW_MESSAGES_MAX
WINDOW_BYTES = limits.STREAM_WINDOW_BYTES_MAX


class Outgoing:
    """The sending side: take before each message."""

    def __init__(self) -> None:
        self._messages = WINDOW_MESSAGES
        self._bytes = WINDOW_BYTES
        self._waiting: asyncio.Future[None] | None = None

    def take_now(self, size: int) -> bool:
        """False: nothing is left, wait for it."""
        if self._messages <= 0 or self._bytes <= 0:
            return False
        self._messages -= 1
        self._bytes -= size
        return True

    async def take(self, size: int) -> None:
        while not self.take_now(size):
            self._waiting = asyncio.get_running_loop().create_future()
            await self._waiting

    def add(self, credit: CreditFrame) -> None:
        """Raises InvalidArgument for more than was ever taken."""
        messages, size = self._messages + credit.messages, self._bytes + credit.bytes
        if (
            min(credit.messages, credit.bytes) < 0
            or messages > WINDOW_MESSAGES
            or size > WINDOW_BYTES
        ):
            raise InvalidArgument(
                f"{credit.messages} messages and {credit.bytes} bytes more than the window of "
                f"{WINDOW_MESSAGES} and {WINDOW_BYTES} has room for"
            )
        self._messages, self._bytes = messages, size
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)


class Incoming:
    """The reading side: holds what came until it is read, and allows more as it is. It is read by
    `async for`, by one reader."""

    def __init__(
        self,
        call_id: int,
        send: Callable[[CreditFrame], None],
        let_go: Callable[[int], None] | None = None,
    ) -> None:
        """`let_go` hears of the bytes of each message that is not held any more."""
        self._id = call_id
        self._send = send
        self._let_go = let_go
        self._held: deque[bytes] = deque()
        self._room_messages = WINDOW_MESSAGES
        self._room_bytes = WINDOW_BYTES
        self._read_messages = 0
        self._read_bytes = 0
        """Read since the last grant."""
        self._waiting: asyncio.Future[None] | None = None
        self._is_over = False
        self._error: Exception | None = None

    def put(self, body: bytes) -> None:
        if self._is_over or self._room_messages <= 0 or self._room_bytes <= 0:
            raise InvalidArgument("a message beyond the window, or after the end, of its stream")
        self._room_messages -= 1
        self._room_bytes -= len(body)
        self._held.append(body)
        self._wake()

    def end(self, error: Exception | None = None) -> None:
        self._is_over = True
        self._error = self._error or error
        self._wake()

    def drop(self) -> None:
        """Nobody will read it: forget what is held, take no more."""
        self._is_over = True
        while self._held:
            self._taken()
        self._wake()

    def _wake(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    def __aiter__(self) -> "Incoming":
        return self

    async def __anext__(self) -> bytes:
        while not self._held:
            if self._is_over:
                error, self._error = self._error, None
                raise error or StopAsyncIteration
            self._waiting = asyncio.get_running_loop().create_future()
            await self._waiting
        return self.next_held()

    @property
    def has_held(self) -> bool:
        return bool(self._held)

    def next_held(self) -> bytes:
        body = self._taken()
        if not self._is_over:
            self._grant(len(body))
        return body

    def _taken(self) -> bytes:
        body = self._held.popleft()
        if self._let_go is not None:
            self._let_go(len(body))
        return body

    def _grant(self, size: int) -> None:
        """Half a window at a time: grants are few, and a sender with some left does not wait."""
        self._read_messages += 1
        self._read_bytes += size
        if self._read_messages < WINDOW_MESSAGES // 2 and self._read_bytes < WINDOW_BYTES // 2:
            return
        self._room_messages += self._read_messages
        self._room_bytes += self._read_bytes
        self._send(CreditFrame(self._id, self._read_messages, self._read_bytes))
        self._read_messages = self._read_bytes = 0
