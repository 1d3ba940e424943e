"""Bodies that a hub has in hand: put together from pieces, and bounded all together."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import TypeVar

from omnirelay.model import limits
from omnirelay.model.errors import DeadlineExceeded, InvalidArgument, Overloaded, TooLarge

T = TypeVar("T")

PIECE_S = 30.0
"""How long the next piece of a body may take."""


class Held:
    """A lone body always finds room; bodies that come together must fit together."""

    def __init__(self) -> None:
        self.bytes = 0

    @contextmanager
    def room_for(self, size: int) -> Iterator[None]:
        self.take(size)
        try:
            yield
        finally:
            self.bytes -= size

    def take(self, size: int, already: int = 0) -> None:
        """`already` of what is held belongs to the same body."""
        if self.bytes > already and self.bytes + size > limits.HUB_HELD_BYTES_MAX:
            raise Overloaded(f"the hub has {self.bytes} bytes in hand already; slow down")
        if already + size > limits.HUB_BODY_BYTES_MAX:
            raise TooLarge(f"a body has at most {limits.HUB_BODY_BYTES_MAX} bytes")
        self.bytes += size


@asynccontextmanager
async def gathered(
    messages: AsyncIterator[T],
    piece_of: Callable[[T], bytes],
    held: Held,
    check: Callable[[T], object],
) -> AsyncIterator[tuple[T, bytes]]:
    """The first message, which names the body, and the body. `check` sees the first before anything
    is gathered."""
    pieces: list[bytes] = []
    first: T | None = None
    size = 0
    try:
        while (message := await _next(messages)) is not None:
            if first is None:
                check(message)
                first = message
            piece = piece_of(message)
            held.take(len(piece), size)
            size += len(piece)
            pieces.append(piece)
        if first is None:
            raise InvalidArgument("the call ended without a message")
        yield first, b"".join(pieces)
    finally:
        held.bytes -= size


async def _next(messages: AsyncIterator[T]) -> T | None:
    try:
        async with asyncio.timeout(PIECE_S):
            return await anext(messages, None)
    except TimeoutError:
        raise DeadlineExceeded(f"the next piece did not come within {PIECE_S:.0f} s") from None
