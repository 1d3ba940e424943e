"""Where an event loop hands calls in to a shard and gets their outcomes back.

A shard takes calls from any thread and answers on whichever took the turn. A desk belongs to one
loop: it turns each call into something to await, brings all outcomes that are there over in one
wake-up, and gives back at once what was leased for somebody who has gone.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextvars import Context
from functools import partial

from omnirelay.lease.answers import LeaseResponse
from omnirelay.lease.commands import Release
from omnirelay.mesh.calls import AnyCall, Call, LeaseCall, Leases, Outcome, unheard
from omnirelay.model.errors import InvalidArgument, NothingToLease, OmniRelayError


class Answers:
    """What a call will be answered, to be awaited once. A future in all that a task asks of one;
    but whoever needs no task (`rpc.prompt`) goes on in the moment the answer is there, not a turn
    of the loop later."""

    __slots__ = (
        "_asyncio_future_blocking",
        "_call",
        "_callback",
        "_context",
        "_is_over",
        "_loop",
        "_result",
    )

    def __init__(self, loop: asyncio.AbstractEventLoop, call: AnyCall) -> None:
        self._asyncio_future_blocking = False
        self._loop = loop
        self._call = call
        self._result: Sequence[Outcome] | None = None
        self._is_over = False
        self._callback: Callable[[Answers], object] | None = None
        self._context: Context | None = None

    def __await__(self) -> "Generator[Answers, None, Sequence[Outcome]]":
        if not self._is_over:
            self._asyncio_future_blocking = True
            yield self
        return self.result()

    def get_loop(self) -> asyncio.AbstractEventLoop:
        return self._loop

    def done(self) -> bool:
        return self._is_over

    def cancelled(self) -> bool:
        return self._is_over and self._result is None

    def result(self) -> Sequence[Outcome]:
        assert self._is_over, "nothing has come yet"
        if self._result is None:
            raise asyncio.CancelledError
        return self._result

    def add_done_callback(
        self, callback: "Callable[[Answers], object]", *, context: Context | None = None
    ) -> None:
        """With a context, as tasks bring one, it is called in a later turn of the loop."""
        assert not self._is_over, "whoever awaits it does not ask when it is there"
        self._callback, self._context = callback, context

    def cancel(self, msg: object = None) -> bool:
        if self._is_over:
            return False
        self._is_over = True
        self._call.withdrawn = True
        if self._callback is not None:
            self._loop.call_soon(self._callback, self, context=self._context)
        return True

    def come(self, outcomes: Sequence[Outcome]) -> None:
        self._result = outcomes
        self._is_over = True
        # Let go of it: it leads back here, and all that the call brought would wait for the garbage
        # collector.
        callback, self._callback = self._callback, None
        if self._context is not None:
            self._loop.call_soon(callback, self, context=self._context)  # type: ignore[arg-type]
        elif callback is not None:
            callback(self)


class Desk:
    """Made on the thread of its loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, offer: Callable[[AnyCall], None]) -> None:
        self._loop = loop
        self._thread = threading.get_ident()
        self._offer = offer
        self._posted: deque[tuple[AnyCall, Answers, Sequence[Outcome]]] = deque()
        self._scheduled = False

    def admit_by(self, offer: Callable[[AnyCall], None]) -> None:
        """From now on calls go this way."""
        self._offer = offer

    def call(self, call: Call) -> Answers:
        """One outcome a command, in order. Raises Overloaded or Closed. Whoever stops waiting
        withdraws what was not decided yet."""
        return self._expect(call)

    async def lease(self, call: LeaseCall) -> tuple[LeaseResponse, ...]:
        """Empty if nothing came within the wait. A caller that is cancelled keeps no lease."""
        future = self._expect(call)
        try:
            return leases_of(await future)
        except asyncio.CancelledError:
            if future.done() and not future.cancelled():  # it came in the moment we were cancelled
                self._give_back(call, future.result())
            raise

    def release(self, leases: Sequence[LeaseResponse], principal: str) -> None:
        """Hand back, untried, what nobody will work on."""
        give_back(self._offer, leases, principal)

    def _expect(self, call: AnyCall) -> Answers:
        future = Answers(self._loop, call)
        call.reply = partial(self._post, call, future)
        self._offer(call)
        return future

    def _post(self, call: AnyCall, future: Answers, outcomes: Sequence[Outcome]) -> None:
        if threading.get_ident() == self._thread:
            self._settle(call, future, outcomes)
            return
        self._posted.append((call, future, outcomes))
        if not self._scheduled:
            self._scheduled = True
            try:
                self._loop.call_soon_threadsafe(self._hand_out)
            except RuntimeError:
                self._scheduled = False
                self._give_back(call, outcomes)  # the loop has ended

    def _hand_out(self) -> None:
        self._scheduled = False
        while self._posted:
            self._settle(*self._posted.popleft())

    def _settle(self, call: AnyCall, future: Answers, outcomes: Sequence[Outcome]) -> None:
        if not future.done():
            future.come(outcomes)
        elif future.cancelled():
            self._give_back(call, outcomes)
        call.reply = unheard  # what it was leads back to the call

    def _give_back(self, call: AnyCall, outcomes: Sequence[Outcome]) -> None:
        if isinstance(call, LeaseCall) and isinstance(outcomes[0], Leases):
            self.release(outcomes[0].leases, call.principal)


def give_back(
    offer: Callable[[AnyCall], None], leases: Sequence[LeaseResponse], principal: str
) -> None:
    """Release at once, untried."""
    if leases:
        releases = [Release(token=one.token, principal=principal) for one in leases]
        try:
            offer(Call(releases))
        except OmniRelayError:
            return  # closed or overloaded: they expire instead


async def or_none(
    leasing: Awaitable[tuple[LeaseResponse, ...]],
) -> tuple[LeaseResponse, ...]:
    """For a wish that came with a report, which counts whatever becomes of the wish: who asks again
    hears why there was nothing. Raises InvalidArgument alone."""
    try:
        return await leasing
    except InvalidArgument:
        raise
    except OmniRelayError:
        return ()


def leases_of(outcomes: Sequence[Outcome]) -> tuple[LeaseResponse, ...]:
    outcome = outcomes[0]
    if isinstance(outcome, Leases):
        return outcome.leases
    assert isinstance(outcome, OmniRelayError)
    if isinstance(outcome, NothingToLease):
        return ()
    raise outcome
