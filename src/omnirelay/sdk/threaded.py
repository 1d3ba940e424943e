"""A remote link for threads: it lives on a loop of its own, and its callers block."""

from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from concurrent.futures import CancelledError
from typing import Any, TypeVar

from omnirelay.journal.checkpoint import Apply
from omnirelay.journal.events import Event
from omnirelay.journal.follower import FollowerStatus
from omnirelay.lease.answers import LeaseResponse
from omnirelay.lease.commands import Command, Complete
from omnirelay.mesh.calls import Outcome
from omnirelay.model.errors import Closed, OmniRelayError
from omnirelay.model.items import Token
from omnirelay.sdk.link import Swapped, Wish, one_by_one
from omnirelay.sdk.remote import RemoteLink
from omnirelay.sdk.threads import LoopThread

T = TypeVar("T")


class ThreadedLink:
    def __init__(self, make: Callable[[], RemoteLink]) -> None:
        self._thread = LoopThread("omnirelay-remote")
        try:
            self._link = self._thread.call(_made(make))
        except BaseException:
            self._thread.stop()
            raise

    async def call(
        self, commands: Sequence[Command], *, wait_ms: int | None = None
    ) -> Sequence[Outcome]:
        return self._wait(self._link.call(commands, wait_ms=wait_ms))

    async def lease(self, wish: Wish) -> tuple[LeaseResponse, ...]:
        taking = _Taking(self._link, wish)
        try:
            return self._wait(taking.run())
        except OmniRelayError:
            raise
        except BaseException:
            # An interrupted caller keeps no lease: one that has come meanwhile goes back.
            self._thread.soon(taking.give_back)
            raise

    async def complete_and_lease(self, completes: Sequence[Complete], wish: Wish) -> Swapped:
        return await one_by_one(self, completes, wish)

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        future = self._thread.start(work)
        try:
            return future.result()
        except CancelledError:
            raise Closed("the relay was closed before an answer came") from None
        except BaseException:
            future.cancel()
            raise

    def beat(self, tokens: Sequence[Token], timeout_s: float) -> Sequence[Outcome]:
        return self._link.beat(tokens, timeout_s)

    async def events(self, after: int, *, follow: bool) -> AsyncGenerator[Event]:
        events = self._link.events(after, follow=follow)
        try:
            while True:
                event = self._wait(_next(events))
                if event is None:
                    return
                yield event
        finally:
            self._leave(events)

    def _leave(self, events: AsyncGenerator[Event]) -> None:
        try:
            self._wait(_close(events))
        except Closed:
            return  # it ended with the relay

    def follow(self, name: str, apply: Apply) -> None:
        self._link.follow(name, apply)

    def unfollow(self, name: str, *, forget: bool) -> None:
        self._link.unfollow(name, forget=forget)

    def follower_status(self) -> list[FollowerStatus]:
        return self._link.follower_status()

    async def aside(self, work: Callable[[], None]) -> None:
        work()

    async def close(self) -> None:
        try:
            self._thread.call(self._link.close())
        except Closed:
            return  # closed before
        self._thread.stop()


class _Taking:
    """A lease call on the link's loop for a thread that may be gone when it is answered."""

    def __init__(self, link: RemoteLink, wish: Wish) -> None:
        self._link = link
        self._wish = wish
        self._leases: tuple[LeaseResponse, ...] = ()

    async def run(self) -> tuple[LeaseResponse, ...]:
        self._leases = await self._link.lease(self._wish)
        return self._leases

    def give_back(self) -> None:
        self._link.give_back(self._leases)


async def _made(make: Callable[[], RemoteLink]) -> RemoteLink:
    return make()


async def _next(events: AsyncGenerator[Event]) -> Event | None:
    return await anext(events, None)


async def _close(events: AsyncGenerator[Event]) -> None:
    await events.aclose()
