"""A link to a node, over whatever outbound it is given."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from itertools import count

import msgspec

from omnirelay.journal.checkpoint import Apply
from omnirelay.journal.events import Event
from omnirelay.journal.follower import FollowerStatus
from omnirelay.lease.answers import Leased
from omnirelay.lease.commands import Command, Complete, Enqueue, Heartbeat, Release
from omnirelay.mesh import wire
from omnirelay.mesh.calls import Outcome
from omnirelay.model.errors import InvalidOption, OmniRelayError, StaleToken, Unavailable
from omnirelay.model.items import Token
from omnirelay.model.ports import Clock, Ids
from omnirelay.rpc.transport import Outbound
from omnirelay.sdk import words
from omnirelay.sdk.asking import Asking
from omnirelay.sdk.batching import Batcher
from omnirelay.sdk.link import Wish
from omnirelay.sdk.taking import Taker
from omnirelay.sdk.threads import LoopThread

Opener = Callable[[], Outbound]
"""Makes one more outbound to the same node, on the loop that will use it."""


class RemoteLink:
    """Made on the loop that uses it."""

    def __init__(
        self,
        open_outbound: Opener,
        namespace: str,
        *,
        clock: Clock,
        ids: Ids,
        chance: Callable[[], float],
        retry_s: float = 30.0,
    ) -> None:
        loop = asyncio.get_running_loop()
        self._open_outbound = open_outbound
        self._outbound = open_outbound()
        self._asking = Asking(
            self._outbound, namespace, clock=clock, chance=chance, retry_s=retry_s
        )
        self._name = ids.lease_id()[:13]
        self._numbers = count(1)
        self._enqueues = Batcher[Enqueue](loop, self._send_enqueues, _size)
        self._completes = Batcher[Complete](loop, self._send_completes)
        self._taker = Taker(loop, clock, self._ask_leases, self._give_back)
        self._heartbeats = _Heartbeats(open_outbound, namespace, clock, chance)
        self._tasks: set[asyncio.Task[None]] = set()

    # -- commands -----------------------------------------------------------------------------

    async def call(
        self, commands: Sequence[Command], *, wait_ms: int | None = None
    ) -> Sequence[Outcome]:
        kinds = {type(command) for command in commands}
        if kinds == {Enqueue}:
            return await self._enqueues.add([self._named(one) for one in commands])  # type: ignore[arg-type]
        if kinds == {Complete}:
            return await self._completes.add(commands)  # type: ignore[arg-type]
        if len(commands) == 1:
            return (await self._one(commands[0]),)
        return await asyncio.gather(*(self._each(command) for command in commands))

    async def _each(self, command: Command) -> Outcome:
        try:
            return (await self.call((command,)))[0]
        except OmniRelayError as error:
            return error

    def _named(self, command: Enqueue) -> Enqueue:
        """With a request id of our own if the caller gave none, so that it can be repeated."""
        payload = command.payload
        if payload.request_id is not None:
            return command
        payload = msgspec.structs.replace(payload, request_id=self._next_id())
        return msgspec.structs.replace(command, payload=payload)

    def _next_id(self) -> str:
        return f"{self._name}.{next(self._numbers)}"

    async def _one(self, command: Command) -> Outcome:
        if isinstance(command, Heartbeat):
            response = await self._asking.ask(
                "heartbeatBatch", wire.TokenBatchRequest(command.tokens), wire.TokenBatchResponse
            )
            assert response is not None
            return words.beats(response)
        spoken = words.SPOKEN[type(command)]
        request = spoken.request(command)
        return spoken.answer(await self._asking.ask(spoken.verb, request, spoken.response))

    async def _send_enqueues(self, commands: Sequence[Enqueue]) -> Sequence[Outcome]:
        request = wire.EnqueueBatchRequest(tuple(map(words.enqueue_request, commands)))
        response = await self._asking.ask("enqueueBatch", request, wire.EnqueueBatchResponse)
        assert response is not None
        return words.enqueue_outcomes(response)

    async def _send_completes(self, commands: Sequence[Complete]) -> Sequence[Outcome]:
        request = wire.TokenBatchRequest(tuple([command.token for command in commands]))
        response = await self._asking.ask("completeBatch", request, wire.TokenBatchResponse)
        assert response is not None
        return words.token_outcomes(response)

    # -- leases -------------------------------------------------------------------------------

    async def lease(self, wish: Wish) -> tuple[Leased, ...]:
        return await self._taker.take(wish)

    async def _ask_leases(self, wish: Wish) -> tuple[Leased, ...]:
        try:
            return await self._ask_once(wish, wish.request_id or self._next_id())
        except StaleToken:
            # The reply got lost and by the time we asked again its leases were over.
            if wish.request_id is not None:
                raise
            return await self._ask_once(wish, self._next_id())

    async def _ask_once(self, wish: Wish, request_id: str) -> tuple[Leased, ...]:
        request = wire.LeaseBatchRequest(
            wish.max_items,
            wish.peer_id,
            wish.wait_ms,
            wish.resource_types,
            wish.lease_duration_ms,
            request_id,
        )
        response = await self._asking.ask("leaseBatch", request, wire.LeaseBatchResponse)
        return () if response is None else tuple(map(words.leased, response.leases))

    def _give_back(self, leases: tuple[Leased, ...]) -> None:
        for leased in leases:
            task = asyncio.create_task(self._release(leased.token))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _release(self, token: Token) -> None:
        await self._each(Release(token=token))

    def beat(self, tokens: Sequence[Token], timeout_s: float) -> Sequence[Outcome]:
        return self._heartbeats.beat(tokens, timeout_s)

    # -- events -------------------------------------------------------------------------------

    async def events(self, after: int, *, follow: bool) -> AsyncGenerator[Event]:
        """Goes on where it was when the connection is lost."""
        codec = self._outbound.codec
        while True:
            request = wire.EventsRequest(after + 1, follow)
            try:
                async with aclosing(await self._asking.open("events", request)) as messages:
                    async for message in messages:
                        event = codec.decode(message, Event)
                        yield event
                        after = event.sequence_number
                if not follow:
                    return
            except Unavailable:
                await asyncio.sleep(0.2)

    def follow(self, name: str, apply: Apply) -> None:
        raise InvalidOption("followers run where the journal is: read `events` instead")

    def unfollow(self, name: str, *, forget: bool) -> None:
        raise InvalidOption("followers run where the journal is")

    def follower_status(self) -> list[FollowerStatus]:
        return []

    async def aside(self, work: Callable[[], None]) -> None:
        await asyncio.to_thread(work)

    async def close(self) -> None:
        if self._tasks:
            await asyncio.wait(set(self._tasks), timeout=1.0)
        await asyncio.to_thread(self._heartbeats.close)
        await self._outbound.stop()


class _Heartbeats:
    """A thread and a connection of their own: a busy loop or a full connection delays none."""

    def __init__(
        self, open_outbound: Opener, namespace: str, clock: Clock, chance: Callable[[], float]
    ) -> None:
        self._open_outbound = open_outbound
        self._namespace = namespace
        self._clock = clock
        self._chance = chance
        self._thread: LoopThread | None = None
        self._asking: Asking | None = None

    def beat(self, tokens: Sequence[Token], timeout_s: float) -> Sequence[Outcome]:
        if self._thread is None:
            self._thread = LoopThread("omnirelay-heartbeats")
        return self._thread.call(self._beat(tuple(tokens), timeout_s))

    async def _beat(self, tokens: tuple[Token, ...], timeout_s: float) -> Sequence[Outcome]:
        if self._asking is None:
            self._asking = Asking(
                self._open_outbound(),
                self._namespace,
                clock=self._clock,
                chance=self._chance,
                retry_s=0,
            )
        try:
            async with asyncio.timeout(timeout_s):
                response = await self._asking.ask(
                    "heartbeatBatch", wire.TokenBatchRequest(tokens), wire.TokenBatchResponse
                )
        except TimeoutError:
            raise Unavailable(f"no heartbeat was answered within {timeout_s} s") from None
        assert response is not None
        return words.token_outcomes(response)

    def close(self) -> None:
        if self._thread is not None:
            if self._asking is not None:
                self._thread.call(self._asking.outbound.stop())
            self._thread.stop()


def _size(command: Enqueue) -> int:
    return len(command.payload.body) * 4 // 3 + 512
