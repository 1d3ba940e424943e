"""The link between a caller and its queue: a lease that nobody takes goes back at once."""

import asyncio
from typing import TYPE_CHECKING, cast

import pytest

from omnirelay.lease.answers import LeaseResponse
from omnirelay.lease.commands import Release
from omnirelay.mesh.calls import AnyCall, Call, LeaseCall, Leases
from omnirelay.model.errors import Closed
from omnirelay.model.items import Payload, Token, to_time
from omnirelay.sdk.link import EmbeddedLink, Wish

if TYPE_CHECKING:
    from omnirelay.sdk.engine import Engine

TOKEN = Token(1, 1, "00000000-0000-0000-0000-000000000001", 2)
REPLY = (
    Leases(
        (LeaseResponse(Payload("table", "a"), 1, 1, to_time(0), TOKEN, 2, to_time(0), 100, 33),)
    ),
)


class Inbox:
    """An engine that only keeps what it is offered."""

    def __init__(self) -> None:
        self.calls: list[AnyCall] = []
        self.is_closed = False

    def offer(self, call: AnyCall) -> None:
        if self.is_closed:
            raise Closed("the relay is closed")
        self.calls.append(call)

    def wish(self) -> LeaseCall:
        (call,) = self.calls
        assert isinstance(call, LeaseCall)
        return call

    def released(self) -> list[Token]:
        commands = [c for call in self.calls if isinstance(call, Call) for c in call.commands]
        return [command.token for command in commands if isinstance(command, Release)]


@pytest.fixture
def inbox() -> Inbox:
    return Inbox()


async def ask(inbox: Inbox) -> "asyncio.Task[tuple[LeaseResponse, ...]]":
    link = EmbeddedLink(cast("Engine", inbox))
    asking = asyncio.create_task(link.lease(Wish(wait_ms=1000)))
    await asyncio.sleep(0)
    return asking


async def test_a_lease_that_arrives_is_the_callers(inbox: Inbox) -> None:
    asking = await ask(inbox)
    inbox.wish().reply(REPLY)
    assert [leased.token for leased in await asking] == [TOKEN]
    assert inbox.released() == []


async def test_a_wish_whose_caller_was_cancelled_is_withdrawn(inbox: Inbox) -> None:
    asking = await ask(inbox)
    asking.cancel()
    await asyncio.wait([asking])
    assert inbox.wish().withdrawn


async def test_a_lease_granted_to_a_caller_that_has_gone_is_released(inbox: Inbox) -> None:
    asking = await ask(inbox)
    asking.cancel()
    await asyncio.wait([asking])
    inbox.wish().reply(REPLY)
    await asyncio.sleep(0)
    assert inbox.released() == [TOKEN]


async def test_a_lease_that_arrives_in_the_moment_of_the_cancel_is_released(inbox: Inbox) -> None:
    asking = await ask(inbox)
    inbox.wish().reply(REPLY)
    asking.cancel()  # the reply is there, the caller has not had its turn yet
    await asyncio.wait([asking])
    assert asking.cancelled()
    assert inbox.released() == [TOKEN]


async def test_a_lease_for_a_loop_that_has_ended_is_released(inbox: Inbox) -> None:
    calls: list[LeaseCall] = []

    async def ask_and_leave() -> None:
        asking = await ask(inbox)
        calls.append(inbox.wish())
        asking.cancel()

    await asyncio.to_thread(asyncio.run, ask_and_leave())
    calls[0].reply(REPLY)
    assert inbox.released() == [TOKEN]


async def test_a_lease_that_cannot_be_released_any_more_expires_instead(inbox: Inbox) -> None:
    asking = await ask(inbox)
    asking.cancel()
    await asyncio.wait([asking])
    inbox.is_closed = True
    inbox.wish().reply(REPLY)
    await asyncio.sleep(0)
    assert inbox.released() == []
