"""The caller's side of the stream transport, against nodes that refuse, vanish or leave."""

import asyncio
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from omnirelay.model.errors import (
    Closed,
    DeadlineExceeded,
    InvalidArgument,
    InvalidOption,
    OmniRelayError,
    OutcomeUnknown,
    Overloaded,
    Unavailable,
)
from omnirelay.rpc.status import ErrorBody
from omnirelay.testing.transport_echo import Said
from omnirelay.transports.stream_frames import (
    VERSION,
    Goodbye,
    Hello,
    Ping,
    Pong,
    ReplyFrame,
    Welcome,
    pack,
)
from omnirelay.transports.stream_outbound import StreamOutbound
from tests.wire.stream_fake import Guest, fake_node
from tests.wire.stream_raw import CLOCK, EMPTY, ask, asking, served, soon, until


@asynccontextmanager
async def calling(url: str, **options: Any) -> AsyncGenerator[StreamOutbound]:
    outbound = StreamOutbound(url, clock=CLOCK, **options)
    try:
        yield outbound
    finally:
        await outbound.stop()


def refusal(code: str, status: str) -> ErrorBody:
    return ErrorBody("so it is", status, code)


# -- connecting -----------------------------------------------------------------------------------


async def test_however_many_calls_wait_one_connection_is_opened() -> None:
    async with served() as node, node.outbound() as outbound:
        await asyncio.gather(*(ask(outbound, "say", Said(number=n)) for n in range(500)))
        assert node.inbound.connection_count == 1


async def test_when_it_fails_all_hear_it_at_once() -> None:
    tried = 0

    async def refuse(guest: Guest) -> None:
        nonlocal tried
        tried += 1
        await guest.next(Hello)
        await guest.gone()  # and says nothing

    async with fake_node(refuse) as node, calling(node.url, connect_s=0.2) as outbound:
        async with asyncio.timeout(2):
            calls = (outbound(asking("say")) for _ in range(200))
            outcomes = await asyncio.gather(*calls, return_exceptions=True)
        assert {type(one) for one in outcomes} == {Unavailable}
        assert tried == 1


async def test_a_connection_that_was_not_welcomed_is_closed_and_not_used() -> None:
    gone = asyncio.Event()

    async def silent(guest: Guest) -> None:
        await guest.next(Hello)
        await guest.gone()
        gone.set()

    async with fake_node(silent) as node, calling(node.url, connect_s=0.1) as outbound:
        for _ in range(2):
            with pytest.raises(Unavailable, match="did not answer"):
                await outbound(asking("say"))
        await soon(gone)
        assert node.guests == 2


async def test_a_call_that_gives_up_does_not_take_the_connection_from_the_others() -> None:
    may_welcome = asyncio.Event()

    async def slow(guest: Guest) -> None:
        await guest.next(Hello)
        await may_welcome.wait()
        await guest.send(Welcome(VERSION))
        call = await guest.call()
        await guest.send(ReplyFrame(call.id, EMPTY))
        await guest.gone()

    async with fake_node(slow) as node, calling(node.url) as outbound:
        hasty = asyncio.create_task(outbound(asking("say", expires_ms=CLOCK.monotonic_ms() + 50)))
        patient = asyncio.create_task(ask(outbound, "say"))
        with pytest.raises(DeadlineExceeded):
            await hasty
        may_welcome.set()
        assert await patient == Said()
        assert node.guests == 1


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (refusal("error.overloaded", "RESOURCE_EXHAUSTED"), Overloaded),
        (refusal("error.invalid_argument", "INVALID_ARGUMENT"), InvalidArgument),
        (refusal("error.unavailable", "UNAVAILABLE"), Unavailable),
    ],
)
async def test_who_is_turned_away_at_the_door_hears_the_reason(
    body: ErrorBody, kind: type[OmniRelayError]
) -> None:
    async def turn_away(guest: Guest) -> None:
        await guest.next(Hello)
        await guest.send(Goodbye(body))
        await guest.gone()

    async with fake_node(turn_away) as node, calling(node.url) as outbound:
        with pytest.raises(kind) as caught:
            await outbound(asking("say"))
        assert type(caught.value) is kind
        assert caught.value.message == "so it is"


@pytest.mark.parametrize(
    "said",
    [b"HTTP/1.1 400 Bad Request\r\n\r\n", pack(Welcome(2)), pack(Ping(1)), b"", pack(Goodbye())],
    ids=["http", "another version", "ping", "nothing", "goodbye"],
)
async def test_what_does_not_welcome_is_unavailable(said: bytes) -> None:
    async def other(guest: Guest) -> None:
        await guest.next(Hello)
        await guest.send(said)

    async with fake_node(other) as node, calling(node.url, connect_s=2) as outbound:
        with pytest.raises(Unavailable) as caught:
            await outbound(asking("say"))
        assert not isinstance(caught.value, OutcomeUnknown)


async def test_nobody_listens() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        async with calling(f"stream://127.0.0.1:{port}") as outbound:
            with pytest.raises(Unavailable, match="cannot be reached"):
                await outbound(asking("say"))
    async with calling(f"stream://{'x' * 70}.example:1") as outbound:
        with pytest.raises(Unavailable, match="cannot be reached"):
            await outbound(asking("say"))


@pytest.mark.parametrize(
    "url",
    ["http://a", "stream://", "stream://a:b", "stream://a:99999", "stream://a:0", "stream+unix://"],
)
def test_what_is_no_address_is_refused_when_it_is_given(url: str) -> None:
    with pytest.raises(InvalidOption):
        StreamOutbound(url, clock=CLOCK)


# -- leaving --------------------------------------------------------------------------------------


async def test_after_a_goodbye_old_calls_are_answered_and_new_ones_go_elsewhere() -> None:
    parted, closed = asyncio.Event(), asyncio.Event()

    async def part(guest: Guest) -> None:
        first = await guest.call()
        if parted.is_set():
            await guest.send(ReplyFrame(first.id, EMPTY))
            await guest.gone()
            return
        await guest.send(Goodbye())
        parted.set()
        await until(lambda: node.guests == 2)
        await guest.send(ReplyFrame(first.id, EMPTY))
        await guest.gone()
        closed.set()

    async with fake_node(part) as node, calling(node.url) as outbound:
        old = asyncio.create_task(ask(outbound, "say"))
        await soon(parted)
        await until(lambda: outbound._connection is not None and not outbound._connection.is_open)
        assert await ask(outbound, "say") == Said()
        assert await old == Said()
        await soon(closed)  # the caller closes what it no longer needs
        assert node.guests == 2


async def test_a_connection_ended_for_a_reason_leaves_the_outcome_unknown() -> None:
    async def end(guest: Guest) -> None:
        await guest.call()
        await guest.send(Goodbye(refusal("error.unavailable", "UNAVAILABLE")))
        await guest.gone()

    async with fake_node(end) as node, calling(node.url) as outbound:
        with pytest.raises(OutcomeUnknown, match="so it is"):
            await outbound(asking("say"))


async def test_a_lost_connection_leaves_the_outcome_unknown_and_the_next_call_opens_another() -> (
    None
):
    async def hang_up(guest: Guest) -> None:
        call = await guest.call()
        if node.guests == 1:
            guest.hang_up()
            return
        await guest.send(ReplyFrame(call.id, EMPTY))
        await guest.gone()

    async with fake_node(hang_up) as node, calling(node.url) as outbound:
        with pytest.raises(OutcomeUnknown):
            await outbound(asking("say"))
        assert await ask(outbound, "say") == Said()


async def test_a_node_that_vanished_is_noticed_by_its_silence() -> None:
    pinged = asyncio.Event()

    async def vanish(guest: Guest) -> None:
        await guest.call()
        await guest.next(Ping)
        pinged.set()
        await guest.gone()

    async with fake_node(vanish) as node, calling(node.url, silence_s=0.3) as outbound:
        with pytest.raises(OutcomeUnknown, match="silent"):
            await ask(outbound, "say")
        assert pinged.is_set()


async def test_a_node_that_answers_pings_may_take_its_time() -> None:
    async def think(guest: Guest) -> None:
        call = await guest.call()
        for _ in range(5):
            await guest.send(Pong((await guest.next(Ping)).number))
        await guest.send(ReplyFrame(call.id, EMPTY))
        await guest.gone()

    async with fake_node(think) as node, calling(node.url, silence_s=0.2) as outbound:
        assert await ask(outbound, "say") == Said()


async def test_to_stop_cuts_off_what_is_under_way_and_takes_nothing_new() -> None:
    async with served() as node, node.outbound() as outbound:
        call = asyncio.create_task(ask(outbound, "wait"))
        await soon(node.echo.waiting)
        await outbound.stop()
        with pytest.raises(OutcomeUnknown):
            await call
        await soon(node.echo.cancelled)
        with pytest.raises(Closed):
            await ask(outbound, "say")
        await outbound.start()
        assert await ask(outbound, "say") == Said()


async def test_to_stop_while_connecting_tells_those_who_wait() -> None:
    async def silent(guest: Guest) -> None:
        await guest.gone()

    async with fake_node(silent) as node, calling(node.url) as outbound:
        call = asyncio.create_task(outbound(asking("say")))
        await until(lambda: node.guests == 1)
        await outbound.stop()
        with pytest.raises(Closed):
            await call


async def test_to_stop_does_not_wait_for_a_node_that_does_not_read() -> None:
    async def deaf(guest: Guest) -> None:
        await guest.next(Hello)
        await guest.send(Welcome(VERSION))
        await asyncio.Event().wait()

    async with fake_node(deaf) as node:
        outbound = StreamOutbound(node.url, clock=CLOCK)
        calls = [
            asyncio.create_task(outbound(asking("say", Said(body=bytes(7 << 20)))))
            for _ in range(4)
        ]
        await until(lambda: outbound._connection is not None)
        async with asyncio.timeout(4):
            await outbound.stop()
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
        assert {type(one) for one in outcomes} == {OutcomeUnknown}
