"""Calls that are served without a task: when they may be, and that they end as a task would."""

import asyncio
import logging
from collections.abc import AsyncGenerator

import pytest

from omnirelay.identity.settings import build_identity
from omnirelay.journal.events import Event
from omnirelay.mesh.component import Component
from omnirelay.mesh.procedures import register
from omnirelay.model.ports import SystemClock
from omnirelay.node.build import build_dispatcher
from omnirelay.node.settings import NodeSettings
from omnirelay.ops.tracing import Sampling
from omnirelay.rpc.builtin import AccessLog, Deadline, LastResort, SizeLimit
from omnirelay.rpc.codec import JSON
from omnirelay.rpc.dispatcher import Dispatcher
from omnirelay.rpc.meta import Reply, Request, RequestMeta, Response
from omnirelay.rpc.middleware import Middleware
from omnirelay.rpc.procedure import Handler, Procedure, Registry
from omnirelay.rpc.prompt import Prompt

STANDARD: tuple[Middleware, ...] = (
    LastResort(lambda: "1"),
    AccessLog(SystemClock()),
    Deadline(SystemClock()),
    SizeLimit(),
)


class Ends(list[BaseException | None]):
    """How it ended, each time it did."""


async def test_one_that_waits_for_nothing_is_over_at_once() -> None:
    ends = Ends()

    async def work() -> None:
        return None

    Prompt(work(), ends.append).begin()
    assert ends == [None]


async def test_it_goes_on_when_what_it_waits_for_is_there() -> None:
    ends, came = Ends(), asyncio.get_running_loop().create_future()

    async def work() -> None:
        assert await came == 7

    Prompt(work(), ends.append).begin()
    assert ends == []
    came.set_result(7)
    await asyncio.sleep(0)
    assert ends == [None]


async def test_what_it_raises_is_told_and_escapes_nowhere() -> None:
    ends, came = Ends(), asyncio.get_running_loop().create_future()

    async def work() -> None:
        await came

    Prompt(work(), ends.append).begin()
    came.set_exception(ValueError("broken"))
    await asyncio.sleep(0)
    (error,) = ends
    assert isinstance(error, ValueError)


@pytest.mark.parametrize("has_come", [False, True])
async def test_cancelled_it_hears_of_it_where_it_waits(has_come: bool) -> None:
    """Also in the moment in which what it waited for has come and it has not gone on yet."""
    ends, came = Ends(), asyncio.get_running_loop().create_future()
    heard = []

    async def work() -> None:
        try:
            await came
        except asyncio.CancelledError:
            heard.append("cancelled")
            raise

    running = Prompt(work(), ends.append)
    running.begin()
    if has_come:
        came.set_result(None)
    running.cancel()
    await asyncio.sleep(0)
    assert heard == ["cancelled"]
    assert [type(error) for error in ends] == [asyncio.CancelledError]
    running.cancel()  # of one that has ended nobody hears
    await asyncio.sleep(0)
    assert len(ends) == 1


async def test_one_that_lets_others_go_first_goes_on_after_them() -> None:
    ends = Ends()

    async def work() -> None:
        await asyncio.sleep(0)

    running = Prompt(work(), ends.append)
    running.begin()
    assert ends == []
    await asyncio.sleep(0)
    assert ends == [None]


async def test_an_end_that_cannot_be_told_is_nobody_elses_trouble(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The shard that answered goes on with the answers of others."""

    async def work() -> None:
        return None

    def told(error: BaseException | None) -> None:
        raise RuntimeError("the wire is gone")

    Prompt(work(), told).begin()
    assert "could not be told" in caplog.text


# -- who may do without one ----------------------------------------------------------------------


class Suspending:
    """Middleware that may wait for something of its own."""

    async def __call__(self, request: Request, procedure: Procedure, next_: Handler) -> Reply:
        await asyncio.sleep(0)
        return await next_(request)


async def _answer(request: Request) -> Reply:
    return Response(request.body)


def _dispatcher(*middleware: Middleware, prompt: bool = True) -> Dispatcher:
    registry = Registry()
    registry.add(Procedure(name="queue::take", handler=_answer, prompt=prompt))
    return Dispatcher(registry, middleware)


def _request(procedure: str = "queue::take", expires_ms: int | None = None) -> Request:
    meta = RequestMeta(procedure=procedure, transport="stream", expires_ms=expires_ms)
    return Request(meta, b"7", JSON)


async def test_a_bare_call_of_a_prompt_procedure_meets_what_passes_and_its_handler() -> None:
    dispatcher, request = _dispatcher(*STANDARD), _request()
    for _ in range(2):
        handler = dispatcher.prompt(request)
        assert handler is not None
        assert await handler(request) == Response(b"7")


@pytest.mark.parametrize(
    ("dispatcher", "request_"),
    [
        (_dispatcher(*STANDARD, prompt=False), _request()),
        (_dispatcher(*STANDARD), _request("queue::unknown")),
        (_dispatcher(*STANDARD), _request(expires_ms=1 << 60)),
        (_dispatcher(*STANDARD, Suspending()), _request()),
    ],
    ids=["not prompt", "not served", "a deadline", "middleware that may suspend"],
)
def test_any_other_call_takes_a_task(dispatcher: Dispatcher, request_: Request) -> None:
    assert dispatcher.prompt(request_) is None


def test_whoever_begins_to_listen_is_noticed_at_the_next_call(
    caplog: pytest.LogCaptureFixture,
) -> None:
    dispatcher, request = _dispatcher(*STANDARD), _request()
    assert dispatcher.prompt(request) is not None
    with caplog.at_level(logging.INFO, logger="omnirelay.access"):
        assert dispatcher.prompt(request) is None
    assert dispatcher.prompt(request) is not None


# -- a node's own --------------------------------------------------------------------------------


class NoQueue:
    """Behind a component that is only looked at."""

    def offer(self, call: object) -> None:
        raise AssertionError("nothing is offered here")

    def events(self, after: int, *, follow: bool) -> AsyncGenerator[Event]:
        raise AssertionError("nothing is read here")

    async def position(self, reader: str, sequence: int | None, *, forget: bool) -> int | None:
        raise AssertionError("nothing is kept here")


async def test_a_node_serves_what_producers_and_workers_ask_for_without_a_task() -> None:
    """Middleware that brings the tasks back would be correct, and slower."""
    registry, clock = Registry(), SystemClock()
    register(registry, Component("q", NoQueue(), clock=SystemClock()))
    dispatcher = build_dispatcher(
        NodeSettings(),
        registry,
        build_identity(NodeSettings().identity, clock),
        Sampling(),
        record=lambda seconds, procedure, transport, outcome: None,
        clock=clock,
    )
    verbs = ("enqueue", "enqueueBatch", "lease", "leaseBatch", "heartbeatBatch", "completeBatch")
    for verb in verbs:
        assert dispatcher.prompt(_request(f"q::{verb}")) is not None, verb
    assert dispatcher.prompt(_request("q::events")) is None
