"""The duplex `work`: credits and acknowledgements go up, leases and results come down.

What was leased but never reached the caller goes back at once, untried.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Sized
from contextlib import aclosing
from typing import TYPE_CHECKING

from omnirelay.lease.commands import Command, Complete, Heartbeat, Release
from omnirelay.mesh.component import Component
from omnirelay.mesh.translate import token_result
from omnirelay.mesh.verbs import fail_of
from omnirelay.mesh.wire import WorkRequest, WorkResponse, WorkResult
from omnirelay.model import limits
from omnirelay.rpc.meta import RequestMeta

if TYPE_CHECKING:
    from omnirelay.lease.answers import LeaseResponse
    from omnirelay.model.items import Token

_AHEAD = 2
"""Grants that may wait to be sent: one leaves while the next is made."""


class Work:
    def __init__(self, component: Component) -> None:
        self._component = component

    async def __call__(
        self, meta: RequestMeta, messages: AsyncIterator[WorkRequest]
    ) -> AsyncGenerator[WorkResponse]:
        shift = _Shift(self._component, meta)
        reading = asyncio.create_task(shift.read(messages))
        granting = asyncio.create_task(shift.grant())
        for task in (reading, granting):
            task.add_done_callback(shift.look_up)
        try:
            async with aclosing(shift.responses(reading, granting)) as responses:
                async for response in responses:
                    yield response
        finally:
            reading.cancel()
            granting.cancel()
            # Before the first await: a call that is cancelled twice gets no further than that.
            shift.hand_back()
            await asyncio.gather(reading, granting, return_exceptions=True)


class _Shift:
    """One caller at work, from its first message to its last. A caller that does not read what it
    is sent is neither read nor granted more."""

    def __init__(self, component: Component, meta: RequestMeta) -> None:
        self._component = component
        self._meta = meta
        self._wanted = WorkRequest()
        self._credits = 0
        self._more = asyncio.Event()
        self._out: deque[tuple[WorkResult, ...]] = deque()
        self._leased: deque[tuple[LeaseResponse, ...]] = deque()
        self._ready = asyncio.Event()
        self._room = asyncio.Event()

    async def read(self, messages: AsyncIterator[WorkRequest]) -> None:
        is_first = True
        async for message in messages:
            if is_first:
                self._wanted, is_first = message, False
            self._credits = min(self._credits + message.credits, limits.BATCH_MAX)
            if self._credits:
                self._more.set()
            results = await self._settle(message)
            if results:
                self._out.append(results)
                self._ready.set()
                await self._await_room(self._out, limits.STREAM_WINDOW_MESSAGES_MAX)

    async def _await_room(self, line: Sized, most: int) -> None:
        while len(line) >= most:
            self._room.clear()
            await self._room.wait()

    async def _settle(self, message: WorkRequest) -> tuple[WorkResult, ...]:
        meta = self._meta
        who, proof = meta.principal, meta.proof
        asked: list[tuple[Token, Command]] = [
            *(
                (token, Complete(token=token, principal=who, proof=proof))
                for token in message.complete
            ),
            *(
                (token, Release(token=token, principal=who, proof=proof))
                for token in message.release
            ),
            *(
                (token, Heartbeat(tokens=(token,), principal=who, proof=proof))
                for token in message.heartbeat
            ),
            *((failed.ownership_token, fail_of(meta, failed)) for failed in message.fail),
        ]
        if not asked:
            return ()
        outcomes = await self._component.all([command for _, command in asked])
        return tuple(
            WorkResult(token, token_result(outcome))
            for (token, _), outcome in zip(asked, outcomes, strict=True)
        )

    async def grant(self) -> None:
        """Ends only by what refuses a lease: bad wishes, or a node that takes no more work."""
        while True:
            await self._more.wait()
            await self._await_room(self._leased, _AHEAD)
            leases = await self._component.lease(
                self._meta,
                self._wanted,
                max_items=self._credits,
                wait_ms=limits.WAIT_MS_MAX,
            )
            self._credits -= len(leases)
            if self._credits <= 0:
                self._more.clear()
            if leases:
                self._leased.append(leases)
                self._ready.set()

    def look_up(self, _ended: object) -> None:
        self._ready.set()

    async def responses(
        self, reading: "asyncio.Task[None]", granting: "asyncio.Task[None]"
    ) -> AsyncGenerator[WorkResponse]:
        """Until the caller has said its last and everything it asked for is answered."""
        while True:
            self._ready.clear()
            has_ended = reading.done()
            # Whoever asks for the next response has sent the one before; only then it is off the
            # list, and what is on it at the end is handed back.
            while self._out:
                yield WorkResponse(results=self._out[0])
                self._out.popleft()
                self._room.set()
            while self._leased:
                yield WorkResponse(leases=self._leased[0])
                self._leased.popleft()
                self._room.set()
            if has_ended:
                reading.result()  # raises what was wrong with the caller's messages
                return
            if granting.done():
                granting.result()
            await self._ready.wait()

    def hand_back(self) -> None:
        for leases in self._leased:
            self._component.desk.release(leases, self._meta.principal)
        self._leased.clear()
