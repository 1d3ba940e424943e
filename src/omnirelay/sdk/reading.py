"""The events of a node, read on over lost connections."""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import aclosing

from omnirelay.journal.events import Event
from omnirelay.mesh import wire
from omnirelay.model.errors import Closed, Unavailable
from omnirelay.sdk.asking import Asking, Patience


async def read_events(asking: Asking, after: int, *, follow: bool) -> AsyncGenerator[Event]:
    """Goes on where it was when the connection is lost; ends when the relay is closed."""
    decode = asking.outbound.codec.decode
    patience = Patience(asking)
    while True:
        request = wire.EventsRequest(after + 1, follow)
        try:
            async with aclosing(await asking.open("events", request)) as messages:
                async for message in messages:
                    event = decode(message, Event)
                    after = event.sequence_number
                    patience.renew()
                    yield event
            if not follow:
                return
            failure = Unavailable("the node ended its stream of events")
        except Unavailable as error:
            failure = error
        try:
            await patience.wait(failure)
        except Closed:
            return


class Gathered:
    """Events as they come, all that are there at a time: who is slow takes them in larger steps."""

    def __init__(self, events: AsyncGenerator[Event], most: int) -> None:
        self._events = events
        self._most = most
        self._held: deque[Event] = deque()
        self._changed = asyncio.Event()

    async def batches(self) -> AsyncGenerator[list[Event]]:
        pumping = asyncio.create_task(self._pump())
        pumping.add_done_callback(lambda _: self._changed.set())
        try:
            while True:
                while not self._held and not pumping.done():
                    self._changed.clear()
                    await self._changed.wait()
                if not self._held:
                    await pumping  # raises what ended it
                    return
                batch = list(self._held)
                self._held.clear()
                self._changed.set()
                yield batch
        finally:
            pumping.cancel()
            await asyncio.gather(pumping, return_exceptions=True)

    async def _pump(self) -> None:
        async with aclosing(self._events) as events:
            async for event in events:
                self._held.append(event)
                self._changed.set()
                while len(self._held) >= self._most:
                    self._changed.clear()
                    await self._changed.wait()
