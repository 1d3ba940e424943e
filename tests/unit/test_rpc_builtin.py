"""What every call meets on its way: last resort, deadline, limits, access log, rate."""

import asyncio
import logging
from collections.abc import AsyncGenerator

import pytest

from omnirelay.model.errors import (
    DeadlineExceeded,
    InvalidArgument,
    InvalidOption,
    OmniRelayError,
    RateLimited,
    ResourceExhausted,
    TooLarge,
)
from omnirelay.rpc.builtin import AccessLog, Deadline, LastResort, SizeLimit
from omnirelay.rpc.limiting import Limiter, RateLimit
from omnirelay.rpc.meta import Reply, Request, RequestMeta, Response, Stream
from omnirelay.rpc.procedure import Procedure
from omnirelay.testing.clock import HandClock
from tests.unit.rpc_parts import Five, answers, request

SECRET = "eyJhbGciOi.secret.signature"


async def silence(call: Request) -> Reply:
    """A handler that never answers."""
    await asyncio.Event().wait()
    raise AssertionError("unreachable")


QUIET = Procedure(name="n::quiet", handler=silence)


def meta(**fields: object) -> RequestMeta:
    return RequestMeta(procedure="n::quiet", transport="memory", **fields)  # type: ignore[arg-type]


# -- the last resort ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("verb", "texts"),
    [("unary", ["bug"]), ("serverStream", ["ab!"]), ("duplex", ["a", "!"])],
)
async def test_a_bug_becomes_an_incident_and_its_text_stays_inside(
    verb: str, texts: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    call = Five().dispatcher(LastResort(lambda: "i-7"))
    with pytest.raises(OmniRelayError) as refused:
        await answers(await call(request(verb, *texts)))
    assert (refused.value.status, refused.value.code) == ("INTERNAL", "error.internal")
    assert refused.value.details == {"incident": "i-7"}
    assert "inside" not in str(refused.value)
    assert refused.value.__cause__ is None
    assert "the inside of a bug" in caplog.text
    assert f"incident i-7 in n::{verb}" in caplog.text


async def test_a_refusal_passes_as_it_is() -> None:
    call = Five().dispatcher(LastResort(lambda: "i-7"))
    told = RequestMeta(procedure="n::unary", transport="memory")
    with pytest.raises(InvalidArgument, match="malformed"):
        await call(Request(told, b"{"))


async def test_a_cancelled_call_is_no_bug(caplog: pytest.LogCaptureFixture) -> None:
    """G35: the original turned cancellations into internal errors."""
    task = asyncio.create_task(_as_handler(LastResort(lambda: "i-7"), QUIET))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert caplog.text == ""


async def _as_handler(one: LastResort | Deadline, procedure: Procedure) -> Reply:
    return await one(Request(meta()), procedure, procedure.handler)


# -- deadline -----------------------------------------------------------------------------------


async def test_a_call_whose_time_was_up_is_not_begun() -> None:
    clock, five = HandClock(), Five()
    call = five.dispatcher(Deadline(clock))
    for left in (0, -1):
        with pytest.raises(DeadlineExceeded):
            await call(request("oneway", "a", expires_ms=clock.now_ms + left))
    assert five.heard == []


async def test_a_call_without_a_deadline_has_all_the_time() -> None:
    call = Five().dispatcher(Deadline(HandClock()))
    assert await answers(await call(request("unary", "a"))) == ["A"]


async def test_a_wait_ends_at_the_deadline_as_what_it_is() -> None:
    clock = HandClock()
    late = Request(meta(expires_ms=clock.now_ms + 20))
    with pytest.raises(DeadlineExceeded):
        await Deadline(clock)(late, QUIET, silence)


async def test_a_timeout_of_the_handlers_own_is_not_the_callers_deadline() -> None:
    async def impatient(call: Request) -> Reply:
        raise TimeoutError("a lookup took too long")

    clock = HandClock()
    with pytest.raises(TimeoutError, match="a lookup"):
        await Deadline(clock)(Request(meta(expires_ms=clock.now_ms + 60_000)), QUIET, impatient)


async def test_a_stream_ends_at_its_deadline_and_is_closed() -> None:
    clock = HandClock()
    closed = asyncio.Event()

    async def messages() -> AsyncGenerator[bytes]:
        try:
            yield b"1"
            clock.now_ms += 1_000
            yield b"2"
        finally:
            closed.set()

    async def handler(call: Request) -> Reply:
        return Stream(messages())

    reply = await Deadline(clock)(Request(meta(expires_ms=clock.now_ms + 500)), QUIET, handler)
    assert isinstance(reply, Stream)
    assert await anext(reply.messages) == b"1"
    assert await anext(reply.messages) == b"2"
    with pytest.raises(DeadlineExceeded):
        await anext(reply.messages)
    assert closed.is_set()


async def test_a_silent_stream_ends_at_its_deadline() -> None:
    async def messages() -> AsyncGenerator[bytes]:
        await asyncio.Event().wait()
        yield b""

    async def handler(call: Request) -> Reply:
        return Stream(messages())

    clock = HandClock()
    reply = await Deadline(clock)(Request(meta(expires_ms=clock.now_ms + 20)), QUIET, handler)
    assert isinstance(reply, Stream)
    with pytest.raises(DeadlineExceeded):
        await anext(reply.messages)


# -- sizes --------------------------------------------------------------------------------------


async def test_a_body_beyond_the_limit_is_not_looked_at() -> None:
    told = RequestMeta(procedure="n::unary", transport="memory")
    call = Five().dispatcher(SizeLimit(bytes_max=10))
    with pytest.raises(TooLarge, match="11 bytes, the limit is 10"):
        await call(Request(told, bytes(11)))


async def test_an_answer_beyond_the_limit_is_refused_with_advice() -> None:
    async def swollen(call: Request) -> Reply:
        return Response(bytes(11))

    with pytest.raises(ResourceExhausted, match="ask for fewer") as refused:
        await SizeLimit(bytes_max=10)(Request(meta()), QUIET, swollen)
    assert not isinstance(refused.value, TooLarge)  # the caller's body was not the trouble


# -- access log ---------------------------------------------------------------------------------


async def test_the_access_log_says_who_did_what_and_never_what_with(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "omnirelay.access")
    clock = HandClock()
    call = Five().dispatcher(AccessLog(clock))
    headers = {"authorization": f"Bearer {SECRET}", "cookie": SECRET, "x-any": SECRET}
    known = {"headers": headers, "principal": "spiffe://a/b", "address": "10.0.0.7"}
    await call(request("unary", SECRET, **known))
    with pytest.raises(ValueError, match="inside"):
        await call(request("unary", "bug", **known))
    assert caplog.messages == [
        "n::unary over memory from 10.0.0.7 by spiffe://a/b: OK in 0 ms",
        "n::unary over memory from 10.0.0.7 by spiffe://a/b: error.internal in 0 ms",
    ]


async def test_the_access_log_names_refusals_and_callers_that_left(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "omnirelay.access")
    clock = HandClock()

    async def refuse(call: Request) -> Reply:
        clock.now_ms += 7
        raise DeadlineExceeded("late")

    async def leave(call: Request) -> Reply:
        raise asyncio.CancelledError

    log = AccessLog(clock)
    with pytest.raises(DeadlineExceeded):
        await log(Request(meta()), QUIET, refuse)
    with pytest.raises(asyncio.CancelledError):
        await log(Request(meta()), QUIET, leave)
    assert [line.partition(": ")[2] for line in caplog.messages] == [
        "error.deadline_exceeded in 7 ms",
        "error.cancelled in 0 ms",
    ]


async def test_nobody_listening_means_nothing_written(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "omnirelay.access")
    await Five().dispatcher(AccessLog(HandClock()))(request("unary", "a"))
    assert caplog.messages == []


# -- rate ---------------------------------------------------------------------------------------


def test_a_bucket_fills_with_time_and_never_beyond_its_burst() -> None:
    clock = HandClock()
    limiter = Limiter(clock, rate_per_s=2, burst=3)
    assert [limiter.take() for _ in range(4)] == [True, True, True, False]
    clock.now_ms += 499
    assert not limiter.take()
    clock.now_ms += 1
    assert limiter.take()
    assert not limiter.take()
    clock.now_ms += 3_600_000
    assert [limiter.take() for _ in range(4)] == [True, True, True, False]


@pytest.mark.parametrize(("rate", "burst"), [(0, 1), (-1, 1), (1, 0), (1, -5)])
def test_a_bucket_that_lets_nobody_through_is_refused(rate: float, burst: int) -> None:
    with pytest.raises(InvalidOption):
        Limiter(HandClock(), rate_per_s=rate, burst=burst)


async def test_urgent_calls_pass_whatever_the_limiter_says() -> None:
    """G52: heartbeats and completions are never slowed, and take nothing from the bucket."""
    limiter = Limiter(HandClock(), rate_per_s=1, burst=1)
    limit = RateLimit(lambda call, procedure: limiter)

    async def answer(call: Request) -> Reply:
        return Response(b"yes")

    urgent = Procedure(name="n::complete", handler=answer, urgent=True)
    usual = Procedure(name="n::enqueue", handler=answer)
    for _ in range(10):
        await limit(Request(meta()), urgent, answer)
    await limit(Request(meta()), usual, answer)
    with pytest.raises(RateLimited, match="n::enqueue"):
        await limit(Request(meta()), usual, answer)
    await limit(Request(meta()), urgent, answer)


async def test_a_selector_may_let_some_calls_through() -> None:
    limiter = Limiter(HandClock(), rate_per_s=1, burst=1)
    limit = RateLimit(lambda call, procedure: None if call.meta.caller == "us" else limiter)
    call = Five().dispatcher(limit)
    for _ in range(3):
        await call(request("unary", "a", caller="us"))
    await call(request("unary", "a"))
    with pytest.raises(RateLimited):
        await call(request("unary", "a"))
