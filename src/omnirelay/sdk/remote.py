"""A link to a node, over whatever outbound it is given."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from contextlib import aclosing
from typing import Any

from omnirelay.journal.checkpoint import Apply, CheckpointStore
from omnirelay.journal.events import Event
from omnirelay.journal.follower import FollowerStatus
from omnirelay.lease.answers import LeaseResponse
from omnirelay.lease.commands import Command, Complete, Release
from omnirelay.mesh import wire
from omnirelay.mesh.calls import Outcome
from omnirelay.model.errors import Closed, OmniRelayError, StaleToken, Unavailable
from omnirelay.model.items import Token
from omnirelay.model.ports import Ids
from omnirelay.sdk import words
from omnirelay.sdk.asking import Route
from omnirelay.sdk.following import Following
from omnirelay.sdk.link import Swapped, Wish, one_by_one
from omnirelay.sdk.pulse import Pulse
from omnirelay.sdk.reading import read_events
from omnirelay.sdk.sending import Sender
from omnirelay.sdk.taking import Taker

CLOSE_S = 1.0
"""How long closing waits for what is under way."""
NO_TYPE = ("",)
"""Resource types that no item has."""


class RemoteLink:
    """Made on the loop that uses it."""

    def __init__(
        self, route: Route, *, ids: Ids, retry_s: float, positions: CheckpointStore
    ) -> None:
        loop = asyncio.get_running_loop()
        self._clock = route.clock
        self._asking = route.asking(retry_s)
        self._sender = Sender(self._asking, ids.lease_id()[:18])
        self._taker = Taker(loop, route.clock, self._ask_leases, self.give_back)
        self._pulse = Pulse(route)
        self._following = Following(route, positions, retry_s)
        self._tasks: set[asyncio.Task[None]] = set()
        self._leasing: set[asyncio.Task[Any]] = set()
        self._calls = 0
        self._is_closing = False
        self._quiet = asyncio.Event()
        """No call is under way; looked at by `close` alone."""

    async def call(
        self, commands: Sequence[Command], *, wait_ms: int | None = None
    ) -> Sequence[Outcome]:
        self._begin_call()
        try:
            return await self._sender.call(commands)
        finally:
            self._end_call()

    def _begin_call(self) -> None:
        if self._is_closing:
            raise _closed()
        self._calls += 1

    def _end_call(self) -> None:
        self._calls -= 1
        if self._is_closing and not self._calls:
            self._quiet.set()

    def _check_open(self) -> None:
        if self._is_closing:
            raise _closed()

    async def complete_and_lease(self, completes: Sequence[Complete], wish: Wish) -> Swapped:
        request = wire.CompleteAndLeaseRequest(
            tuple([one.token for one in completes]),
            wish.max_items,
            wish.peer_id,
            wish.resource_types,
            wish.lease_duration_ms,
            wish.request_id or self._sender.lease_id(),
        )
        self._begin_call()
        try:
            swapped = await self._asking.ask(
                "completeAndLease", request, wire.CompleteAndLeaseResponse
            )
        except asyncio.CancelledError:
            assert request.request_id is not None
            self._spawn(self._return_unseen(wish, request.request_id))
            raise
        except Unavailable:
            raise
        except OmniRelayError:
            # A node of an older version, or something about the wish: the report is not to suffer.
            return await one_by_one(self, completes, wish)
        finally:
            self._end_call()
        assert swapped is not None
        return words.token_outcomes(swapped.results, request.ownership_tokens), swapped.leases

    # -- leases -------------------------------------------------------------------------------

    async def lease(self, wish: Wish) -> tuple[LeaseResponse, ...]:
        self._check_open()
        return await self._taker.take(wish)

    async def _ask_leases(self, wish: Wish) -> tuple[LeaseResponse, ...]:
        """Under a request id, so that a reply that gets lost loses no lease."""
        until = self._clock.monotonic_ms() + wish.wait_ms
        if wish.request_id is not None:
            return await self._ask_watched(wish, wish.request_id, until)
        while True:
            try:
                return await self._ask_watched(wish, self._sender.lease_id(), until)
            except StaleToken:
                continue  # the reply got lost, and when we asked again its leases were over

    async def _ask_watched(
        self, wish: Wish, request_id: str, until: int
    ) -> tuple[LeaseResponse, ...]:
        task = asyncio.current_task()
        assert task is not None
        self._leasing.add(task)
        try:
            return await self._ask_once(wish, request_id, until)
        except asyncio.CancelledError:
            self._spawn(self._return_unseen(wish, request_id))
            if self._is_closing and task.uncancel() == 0:  # it was `close` that ended the wait
                raise Closed("the relay was closed") from None
            raise
        finally:
            self._leasing.discard(task)

    async def _ask_once(self, wish: Wish, request_id: str, until: int) -> tuple[LeaseResponse, ...]:
        def request() -> wire.LeaseBatchRequest:
            return wire.LeaseBatchRequest(
                wish.max_items,
                wish.peer_id,
                min(wish.wait_ms, max(0, until - self._clock.monotonic_ms())),
                wish.resource_types,
                wish.lease_duration_ms,
                request_id,
            )

        response = await self._asking.ask(
            "leaseBatch", request(), wire.LeaseBatchResponse, renewed=request
        )
        return () if response is None else response.leases

    async def _return_unseen(self, wish: Wish, request_id: str) -> None:
        """The caller left while the answer may have been on its way. What was granted under this
        request id is named again by asking again, and nothing is granted anew: there is no work of
        the type that is asked for."""
        request = wire.LeaseBatchRequest(
            wish.max_items, wish.peer_id, 0, resource_types=NO_TYPE, request_id=request_id
        )
        try:
            response = await self._asking.ask("leaseBatch", request, wire.LeaseBatchResponse)
        except OmniRelayError:
            return  # they are over already, or expire
        for lease in () if response is None else response.leases:
            await self._release(lease.token)

    def give_back(self, leases: tuple[LeaseResponse, ...]) -> None:
        """What came for somebody who has gone is released at once, untried."""
        for leased in leases:
            self._spawn(self._release(leased.token))

    async def _release(self, token: Token) -> None:
        await self._sender.outcome(Release(token=token))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def beat(self, tokens: Sequence[Token], timeout_s: float) -> Sequence[Outcome]:
        return self._pulse.beat(tokens, timeout_s)

    # -- events -------------------------------------------------------------------------------

    async def events(self, after: int, *, follow: bool) -> AsyncGenerator[Event]:
        self._check_open()
        async with aclosing(read_events(self._asking, after, follow=follow)) as events:
            async for event in events:
                yield event

    def follow(self, name: str, apply: Apply) -> None:
        self._check_open()
        self._following.follow(name, apply)

    def unfollow(self, name: str, *, forget: bool) -> None:
        self._check_open()
        self._following.unfollow(name, forget=forget)

    def follower_status(self) -> list[FollowerStatus]:
        self._check_open()
        return self._following.status()

    # -- closing ------------------------------------------------------------------------------

    async def aside(self, work: Callable[[], None]) -> None:
        await asyncio.to_thread(work)

    async def close(self) -> None:
        if self._is_closing:
            return
        self._is_closing = True
        for task in self._leasing:
            task.cancel()  # turned into Closed, where it waits
        await asyncio.to_thread(self._following.close)
        await self._finish()
        await asyncio.to_thread(self._pulse.close)
        await self._asking.close()
        # Everything that still waited has heard of it by now, and ends.
        ending = self._tasks | self._sender.tasks | self._taker.tasks
        await asyncio.gather(*ending, return_exceptions=True)

    async def _finish(self) -> None:
        """What is being reported or handed back may still get through."""
        try:
            async with asyncio.timeout(CLOSE_S):
                if self._calls:
                    await self._quiet.wait()
                if under_way := self._tasks | self._sender.tasks:
                    await asyncio.wait(under_way)
        except TimeoutError:
            return


def _closed() -> Closed:
    return Closed("the relay is closed")
