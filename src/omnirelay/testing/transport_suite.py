"""One suite for every transport: the same request gets the same answer, error and headers.

Subclass it as `Test…` with the fixture `wire`, an async context that opens a `Wire` on an `Echo`.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from datetime import UTC, datetime
from typing import Any, Protocol

import pytest

from omnirelay.model import limits
from omnirelay.model.errors import (
    DeadlineExceeded,
    InvalidArgument,
    OmniRelayError,
    ResourceExhausted,
    TooLarge,
    Unavailable,
    Unimplemented,
)
from omnirelay.model.ports import SystemClock
from omnirelay.rpc.headers import PROTOCOL, own_headers
from omnirelay.rpc.meta import Request, RequestMeta, Response, Stream
from omnirelay.rpc.transport import Inbound, Outbound
from omnirelay.testing.transport_echo import BUG, NAMESPACE, REFUSALS, Echo, Said

WAIT_S = 10
CLOCK = SystemClock()


class Wire(Protocol):
    """An echo behind a transport, and a caller in front of it."""

    echo: Echo
    inbound: Inbound
    outbound: Outbound
    has_duplex: bool
    crosses_process: bool
    """Whether a cut connection or an oversized body can happen at all."""


class Caller:
    """Typed calls over the wire under test."""

    def __init__(self, wire: Wire) -> None:
        self._outbound = wire.outbound

    def request(
        self,
        verb: str,
        said: Said | None = None,
        *,
        ttl_ms: int | None = None,
        inbound: AsyncIterator[bytes] | None = None,
        **fields: Any,  # of RequestMeta, which checks them
    ) -> Request:
        codec = self._outbound.codec
        meta = RequestMeta(
            procedure=f"{NAMESPACE}::{verb}",
            transport=self._outbound.name,
            encoding=codec.name,
            expires_ms=None if ttl_ms is None else CLOCK.monotonic_ms() + ttl_ms,
            **fields,
        )
        return Request(meta, codec.encode(said or Said()), codec, inbound)

    async def ask(
        self, verb: str, said: Said | None = None, *, ttl_ms: int | None = None, **fields: Any
    ) -> Said | None:
        request = self.request(verb, said, ttl_ms=ttl_ms, **fields)
        async with asyncio.timeout(WAIT_S):
            reply = await self._outbound(request)
        assert isinstance(reply, Response)
        return None if reply.empty else self._outbound.codec.decode(reply.body, Said)

    async def send(self, verb: str, messages: AsyncIterator[bytes]) -> Response | Stream:
        async with asyncio.timeout(WAIT_S):
            return await self._outbound(self.request(verb, inbound=messages))

    async def open(self, verb: str, said: Said) -> Stream:
        async with asyncio.timeout(WAIT_S):
            reply = await self._outbound(self.request(verb, said))
        assert isinstance(reply, Stream)
        return reply

    def numbers(self, stream: Stream) -> "AsyncIterator[int]":
        return self._numbers(stream)

    async def _numbers(self, stream: Stream) -> AsyncIterator[int]:
        async for message in stream.messages:
            yield self._outbound.codec.decode(message, Said).number

    async def encoded(self, *numbers: int) -> AsyncIterator[bytes]:
        for number in numbers:
            yield self._outbound.codec.encode(Said(number=number))


@pytest.fixture
def caller(wire: Wire) -> Caller:
    return Caller(wire)


class UnarySuite:
    async def test_what_is_said_comes_back_whole(self, caller: Caller) -> None:
        said = Said(
            "sn\u00f6w \u2603",
            -(2**40),
            bytes(range(256)),
            datetime(2026, 11, 16, 4, 5, 6, 789000, UTC),
            {"a": "b", "\u00fc": ""},
        )
        assert await caller.ask("say", said) == said

    async def test_an_empty_reply_is_told_from_an_empty_answer(self, caller: Caller) -> None:
        assert await caller.ask("nothing") is None
        assert await caller.ask("say", Said()) == Said()

    async def test_a_oneway_call_is_heard(self, wire: Wire, caller: Caller) -> None:
        assert await caller.ask("tell", Said("psst")) is None
        assert wire.echo.told == ["psst"]

    @pytest.mark.parametrize("code", REFUSALS)
    async def test_a_refusal_is_the_same_error_on_both_sides(
        self, caller: Caller, code: str
    ) -> None:
        raised = REFUSALS[code]
        with pytest.raises(type(raised)) as caught:
            await caller.ask("refuse", Said(code))
        heard = caught.value
        assert (heard.code, heard.status, heard.message) == (code, raised.status, raised.message)
        assert heard.details == raised.details

    async def test_a_bug_is_an_incident_without_its_text(self, caller: Caller) -> None:
        with pytest.raises(OmniRelayError) as caught:
            await caller.ask("break")
        assert caught.value.code == "error.internal"
        assert BUG not in repr(caught.value)
        assert caught.value.details == {"incident": "incident-1"}

    async def test_an_unknown_procedure_is_unimplemented(self, caller: Caller) -> None:
        with pytest.raises(Unimplemented):
            await caller.ask("sing")

    async def test_a_malformed_body_is_refused(self, wire: Wire) -> None:
        codec = wire.outbound.codec
        meta = Caller(wire).request("say").meta
        with pytest.raises(InvalidArgument):
            await wire.outbound(Request(meta, b"\xc1\xff\x00{", codec))

    async def test_names_given_by_the_caller_arrive(self, wire: Wire, caller: Caller) -> None:
        await caller.ask(
            "say",
            caller="ingest",
            shard_key="orders",
            routing_key="eu",
            routing_delegate="proxy-1",
            peer_id="worker-7",
        )
        (meta,) = wire.echo.metas
        assert meta.transport == wire.inbound.name
        assert (meta.caller, meta.shard_key, meta.peer_id) == ("ingest", "orders", "worker-7")
        assert (meta.routing_key, meta.routing_delegate) == ("eu", "proxy-1")
        assert (meta.namespace, meta.verb) == (NAMESPACE, "say")
        assert meta.principal == "anonymous"

    async def test_headers_that_a_procedure_sets_reach_its_caller(
        self, wire: Wire, caller: Caller
    ) -> None:
        names = {"X-Served-By": "node 1; 50%41", "x-other": "a, b"}
        for text in ("something", "nothing"):
            reply = await wire.outbound(caller.request("label", Said(text, names=names)))
            assert isinstance(reply, Response)
            assert own_headers(reply.headers) == {name.lower(): v for name, v in names.items()}

    @pytest.mark.parametrize("verb", ["say", "nothing", "label"])
    async def test_a_reply_says_its_transport_its_encoding_and_its_shard_key(
        self, wire: Wire, caller: Caller, verb: str
    ) -> None:
        # A procedure, or a node that passes a reply on, has no say in these.
        said = Said(names={"Rpc-Encoding": "x", "rpc-shard-key": "x", "Rpc-Transport": "x"})
        expected = {
            "rpc-transport": wire.inbound.name,
            "rpc-protocol": PROTOCOL,
            "rpc-encoding": wire.outbound.codec.name,
        }
        reply = await wire.outbound(caller.request(verb, said))
        assert isinstance(reply, Response)
        assert reply.headers == expected
        reply = await wire.outbound(caller.request(verb, said, shard_key="orders/50%41 of b"))
        assert isinstance(reply, Response)
        assert reply.headers == {**expected, "rpc-shard-key": "orders/50%41 of b"}

    async def test_the_deadline_arrives(self, wire: Wire, caller: Caller) -> None:
        before = CLOCK.monotonic_ms()
        await caller.ask("say", ttl_ms=60_000)
        expires_ms = wire.echo.metas[0].expires_ms
        assert expires_ms is not None
        # gRPC rounds what is left up to the next tenth of a second.
        assert before + 50_000 < expires_ms <= CLOCK.monotonic_ms() + 61_000

    async def test_a_call_ends_at_its_deadline_on_both_sides(
        self, wire: Wire, caller: Caller
    ) -> None:
        with pytest.raises(DeadlineExceeded):
            await caller.ask("wait", ttl_ms=200)
        async with asyncio.timeout(WAIT_S):
            await wire.echo.cancelled.wait()

    async def test_a_caller_that_goes_away_ends_its_call(self, wire: Wire, caller: Caller) -> None:
        call = asyncio.create_task(caller.ask("wait"))
        async with asyncio.timeout(WAIT_S):
            await wire.echo.waiting.wait()
            call.cancel()
            await wire.echo.cancelled.wait()

    async def test_many_calls_at_once_get_each_their_own_answer(self, caller: Caller) -> None:
        answers = await asyncio.gather(*(caller.ask("say", Said(number=n)) for n in range(300)))
        assert [said.number for said in answers if said is not None] == list(range(300))

    async def test_a_body_beyond_the_limit_is_refused_and_the_next_call_works(
        self, wire: Wire, caller: Caller
    ) -> None:
        with pytest.raises((TooLarge, ResourceExhausted)):
            await caller.ask("say", Said(body=bytes(limits.MESSAGE_BYTES_MAX + 1)))
        assert await caller.ask("say", Said("still here")) == Said("still here")

    async def test_an_answer_beyond_the_limit_is_refused_and_the_next_call_works(
        self, caller: Caller
    ) -> None:
        with pytest.raises(ResourceExhausted):
            await caller.ask("swell", Said(number=limits.MESSAGE_BYTES_MAX + 1))
        assert await caller.ask("say", Said("still here")) == Said("still here")


class StreamSuite:
    async def test_a_stream_comes_in_order_to_its_end(self, caller: Caller) -> None:
        stream = await caller.open("count", Said(number=1000))
        assert [number async for number in caller.numbers(stream)] == list(range(1000))

    async def test_an_empty_stream_ends(self, caller: Caller) -> None:
        stream = await caller.open("count", Said())
        assert [number async for number in caller.numbers(stream)] == []

    async def test_a_reader_that_stops_ends_the_stream_at_its_source(
        self, wire: Wire, caller: Caller
    ) -> None:
        stream = await caller.open("count", Said("stay", 3))
        async with aclosing(stream.messages) as messages:
            assert await anext(messages)
        async with asyncio.timeout(WAIT_S):
            await wire.echo.closed.wait()

    async def test_a_slow_reader_gets_everything(self, caller: Caller) -> None:
        stream = await caller.open("count", Said(number=2000))
        seen = []
        async for number in caller.numbers(stream):
            seen.append(number)
            if number % 100 == 0:
                await asyncio.sleep(0.001)
        assert seen == list(range(2000))

    @pytest.mark.parametrize("code", ["error.taskqueue.lease_inactive", "error.unavailable"])
    async def test_an_error_in_a_stream_comes_after_what_was_sent(
        self, caller: Caller, code: str
    ) -> None:
        stream = await caller.open("stumble", Said(code, 3))
        numbers = caller.numbers(stream)
        assert [await anext(numbers) for _ in range(3)] == [0, 1, 2]
        with pytest.raises(type(REFUSALS[code])) as caught:
            await anext(numbers)
        assert caught.value.message == REFUSALS[code].message

    async def test_a_bug_in_a_stream_is_an_incident_without_its_text(self, caller: Caller) -> None:
        stream = await caller.open("stumble", Said(number=1))
        with pytest.raises(OmniRelayError) as caught:
            async for _ in caller.numbers(stream):
                pass
        assert caught.value.code == "error.internal"
        assert BUG not in repr(caught.value)

    async def test_what_a_client_streams_is_summed_up(self, caller: Caller) -> None:
        reply = await caller.send("sum", caller.encoded(*range(700)))
        assert isinstance(reply, Response)
        assert caller._outbound.codec.decode(reply.body, Said).number == sum(range(700))

    async def test_a_chat_answers_each_message(self, wire: Wire, caller: Caller) -> None:
        if not wire.has_duplex:
            with pytest.raises(Unimplemented):
                await caller.send("chat", caller.encoded(1))
            return
        reply = await caller.send("chat", caller.encoded(*range(600)))
        assert isinstance(reply, Stream)
        assert [n async for n in caller.numbers(reply)] == list(range(1, 601))


class LeavingSuite:
    async def test_what_is_under_way_finishes_when_the_node_stops(
        self, wire: Wire, caller: Caller
    ) -> None:
        if not wire.crosses_process:
            pytest.skip("a call inside the process has no door to close")
        call = asyncio.create_task(caller.ask("wait", Said("patience")))
        async with asyncio.timeout(WAIT_S):
            await wire.echo.waiting.wait()
            stopping = asyncio.create_task(wire.inbound.stop(5.0))
            await asyncio.sleep(0.05)
            assert not call.done()
            wire.echo.go_on.set()
            assert await call == Said("patience")
            await stopping
        with pytest.raises(Unavailable):
            await caller.ask("say", ttl_ms=3000)

    async def test_what_does_not_finish_in_time_is_cut_off(
        self, wire: Wire, caller: Caller
    ) -> None:
        if not wire.crosses_process:
            pytest.skip("a call inside the process has no door to close")
        call = asyncio.create_task(caller.ask("wait"))
        async with asyncio.timeout(WAIT_S):
            await wire.echo.waiting.wait()
            await wire.inbound.stop(0.1)
            with pytest.raises(Unavailable):
                await call
            await wire.echo.cancelled.wait()

    async def test_a_node_stops_twice_without_harm(self, wire: Wire) -> None:
        await wire.inbound.stop(0.1)
        await wire.inbound.stop(0.1)


class TransportSuite(UnarySuite, StreamSuite, LeavingSuite):
    """All of it."""
