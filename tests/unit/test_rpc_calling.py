"""The caller's side: typed calls, tries again, other nodes; and what metrics and spans hold."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from random import Random

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from omnirelay.model.errors import (
    InvalidArgument,
    InvalidOption,
    OmniRelayError,
    OutcomeUnknown,
    RateLimited,
    Unavailable,
)
from omnirelay.rpc.client import Client
from omnirelay.rpc.codec import JSON, Codec
from omnirelay.rpc.failover import Failover
from omnirelay.rpc.meta import Reply, Request, Response, Stream
from omnirelay.rpc.procedure import Kind, Procedure
from omnirelay.rpc.retrying import Retry
from omnirelay.rpc.telemetry import Metrics, Tracing
from omnirelay.transports.memory import MemoryOutbound
from tests.unit.rpc_parts import Five, Word, answers, request


class Flaky:
    """An outbound that fails with what is in its list, then answers."""

    name = "memory"
    codec: Codec = JSON

    def __init__(self, *failures: OmniRelayError, answer: str = "yes") -> None:
        self.failures = list(failures)
        self.calls = 0
        self.is_started = self.is_stopped = False
        self._answer = answer

    async def start(self) -> None:
        self.is_started = True

    async def stop(self) -> None:
        self.is_stopped = True

    async def __call__(self, request: Request) -> Reply:
        self.calls += 1
        if self.failures:
            raise self.failures.pop(0)
        body = JSON.encode(Word(self._answer))
        if request.meta.verb == "events":
            return Stream(_once(body))
        return Response(body)


async def _once(body: bytes) -> AsyncGenerator[bytes]:
    yield body


class Sleeps:
    def __init__(self) -> None:
        self.seconds: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.seconds.append(seconds)


def retrying(outbound: Flaky, sleeps: Sleeps | None = None, **options: float) -> Client:
    retry = Retry(chance=lambda: 1.0, sleep=sleeps or Sleeps(), **options)  # type: ignore[arg-type]
    client = Client(outbound, "n", [retry])
    client.declare("stats", idempotent=True)
    client.declare("events", kind=Kind.SERVER_STREAM, idempotent=True)
    client.declare("work", kind=Kind.DUPLEX, idempotent=True)
    return client


async def words(*texts: str) -> AsyncIterator[Word]:
    for text in texts:
        yield Word(text)


# -- the typed client ---------------------------------------------------------------------------


async def test_a_typed_client_calls_every_kind() -> None:
    five = Five()
    client = Client(MemoryOutbound(five.dispatcher()), "n")
    assert await client.unary("unary", Word("a"), Word) == Word("A")
    assert await client.unary("unary", Word(), Word) is None
    await client.oneway("oneway", Word("told"))
    streamed = await client.server_stream("serverStream", Word("ab"), Word)
    assert [word.text async for word in streamed] == ["a", "b"]
    assert await client.client_stream("clientStream", words("a", "b"), Word) == Word("ab")
    chat = await client.duplex("duplex", words("a", "b"), Word)
    assert [word.text async for word in chat] == ["A", "B"]
    assert five.heard == ["told"]


async def test_a_refusal_is_raised_at_the_caller() -> None:
    client = Client(MemoryOutbound(Five().dispatcher()), "n")
    with pytest.raises(OmniRelayError) as refused:
        await client.unary("nothing", Word(), Word)
    assert refused.value.status == "UNIMPLEMENTED"


# -- trying again -------------------------------------------------------------------------------


async def test_a_call_that_may_be_repeated_is_with_growing_pauses() -> None:
    outbound, sleeps = Flaky(Unavailable("1"), RateLimited("2"), OutcomeUnknown("3")), Sleeps()
    client = retrying(outbound, sleeps, first_s=0.1, most_s=0.25)
    assert await client.unary("stats", Word(), Word) == Word("yes")
    assert (outbound.calls, sleeps.seconds) == (4, [0.1, 0.2, 0.25])


async def test_the_last_error_is_what_the_caller_hears() -> None:
    outbound = Flaky(*(Unavailable(str(number)) for number in range(9)))
    with pytest.raises(Unavailable, match="2"):
        await retrying(outbound, tries=3).unary("stats", Word(), Word)
    assert outbound.calls == 3


async def test_a_call_that_may_have_happened_is_not_repeated_unless_it_may_be() -> None:
    for failure in (Unavailable("1"), OutcomeUnknown("1")):
        outbound = Flaky(failure)
        with pytest.raises(Unavailable):
            await retrying(outbound).unary("enqueue", Word(), Word)
        assert outbound.calls == 1


async def test_what_will_not_change_is_not_asked_again() -> None:
    outbound = Flaky(InvalidArgument("no"))
    with pytest.raises(InvalidArgument):
        await retrying(outbound).unary("stats", Word(), Word)
    assert outbound.calls == 1


async def test_a_stream_is_opened_again_and_one_that_was_fed_is_not() -> None:
    outbound = Flaky(Unavailable("1"))
    events = await retrying(outbound).server_stream("events", Word(), Word)
    assert [word.text async for word in events] == ["yes"]
    with pytest.raises(Unavailable):
        await retrying(Flaky(Unavailable("1"))).duplex("work", words("a"), Word)


async def test_pauses_differ_from_caller_to_caller() -> None:
    sleeps, draw = Sleeps(), Random(7)
    retry = Retry(chance=draw.random, sleep=sleeps, first_s=1.0)
    client = Client(Flaky(Unavailable("1"), Unavailable("2")), "n", [retry])
    client.declare("stats", idempotent=True)
    await client.unary("stats", Word(), Word)
    assert all(0 <= slept <= most for slept, most in zip(sleeps.seconds, (1.0, 2.0), strict=True))
    assert sleeps.seconds[0] != sleeps.seconds[1] / 2


def test_no_tries_at_all_is_no_setting() -> None:
    with pytest.raises(InvalidOption):
        Retry(tries=0, chance=lambda: 1.0)


# -- other nodes --------------------------------------------------------------------------------


async def test_after_a_failure_the_next_node_is_asked_and_stayed_with() -> None:
    first, second = Flaky(Unavailable("down")), Flaky(answer="second")
    failover = Failover([first, second])
    await failover.start()
    client = Client(failover, "n")
    with pytest.raises(Unavailable):
        await client.unary("enqueue", Word(), Word)  # not repeated by itself
    assert await client.unary("enqueue", Word(), Word) == Word("second")
    assert await client.unary("enqueue", Word(), Word) == Word("second")
    assert (first.calls, second.calls) == (1, 2)
    second.failures.append(Unavailable("down"))
    with pytest.raises(Unavailable):
        await client.unary("enqueue", Word(), Word)
    assert await client.unary("enqueue", Word(), Word) == Word("yes")
    await failover.stop()
    assert (first.is_started, second.is_started) == (True, True)
    assert (first.is_stopped, second.is_stopped) == (True, True)


async def test_calls_that_fail_together_move_on_once() -> None:
    down = [Unavailable(str(number)) for number in range(5)]
    first, second, third = Flaky(*down), Flaky(answer="second"), Flaky(answer="third")
    client = Client(Failover([first, second, third]), "n")
    calls = [client.unary("stats", Word(), Word) for _ in range(5)]
    results = await asyncio.gather(*calls, return_exceptions=True)
    assert all(isinstance(result, Unavailable | Word) for result in results)
    assert await client.unary("stats", Word(), Word) == Word("second")
    assert third.calls == 0


async def test_a_refusal_is_no_reason_to_ask_another_node() -> None:
    first, second = Flaky(InvalidArgument("no"), RateLimited("no")), Flaky()
    client = Client(Failover([first, second]), "n")
    for _ in range(2):
        with pytest.raises(OmniRelayError):
            await client.unary("stats", Word(), Word)
    assert second.calls == 0


def test_failover_needs_somewhere_to_go() -> None:
    with pytest.raises(InvalidOption):
        Failover([])


# -- metrics and spans --------------------------------------------------------------------------


async def test_metrics_count_a_bug_as_a_failure_and_label_no_resource() -> None:
    recorded: list[tuple[str, str, str]] = []

    def record(seconds: float, procedure: Procedure, transport: str, outcome: str) -> None:
        assert seconds >= 0
        recorded.append((procedure.name, transport, outcome))

    call = Five().dispatcher(Metrics(record))
    await call(request("unary", "orders-7", principal="spiffe://a/b"))
    with pytest.raises(ValueError, match="inside"):
        await call(request("unary", "bug"))
    assert recorded == [("n::unary", "memory", "OK"), ("n::unary", "memory", "INTERNAL")]


@pytest.fixture
def spans() -> Iterator[tuple[Tracing, InMemorySpanExporter]]:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracing = Tracing(lambda parent: True)
    tracing._tracer = provider.get_tracer("test")
    yield tracing, exporter
    provider.shutdown()


def only(exporter: InMemorySpanExporter) -> ReadableSpan:
    (span,) = exporter.get_finished_spans()
    return span


async def test_a_span_names_the_proved_principal_and_its_parent_and_no_secret(
    spans: tuple[Tracing, InMemorySpanExporter],
) -> None:
    tracing, exporter = spans
    parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    headers = {"traceparent": parent, "authorization": "Bearer canary"}
    call = Five().dispatcher(tracing)
    await call(request("unary", "a", headers=headers, principal="p", shard_key="s", peer_id="w"))
    span = only(exporter)
    assert span.name == "n::unary"
    assert span.attributes == {
        "rpc.system": "omnirelay",
        "rpc.service": "n",
        "rpc.method": "unary",
        "rpc.principal": "p",
        "resourcelease.operation": "unary",
        "rpc.shard_key": "s",
        "rpc.peer": "w",
    }
    assert span.parent is not None
    assert f"{span.parent.span_id:016x}" == "b7ad6b7169203331"
    assert "canary" not in span.to_json()


@pytest.mark.parametrize(
    ("text", "code"), [("bug", "error.internal"), ("{", "error.invalid_argument")]
)
async def test_a_failed_span_holds_the_code_and_not_the_text(
    spans: tuple[Tracing, InMemorySpanExporter], text: str, code: str
) -> None:
    tracing, exporter = spans
    call = Five().dispatcher(tracing)
    asked = request("unary", text)
    if text == "{":
        asked = Request(asked.meta, b"{")
    with pytest.raises((ValueError, OmniRelayError)):
        await call(asked)
    span = only(exporter)
    assert span.status.status_code is StatusCode.ERROR
    assert span.attributes is not None
    assert span.attributes["error.code"] == code
    assert span.events == ()
    assert "inside" not in span.to_json()


async def test_an_unsampled_call_has_no_span(
    spans: tuple[Tracing, InMemorySpanExporter],
) -> None:
    tracing, exporter = spans
    tracing._takes = lambda parent: False
    assert await answers(await Five().dispatcher(tracing)(request("unary", "a"))) == ["A"]
    assert exporter.get_finished_spans() == ()
