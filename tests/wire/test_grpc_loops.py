"""gRPC serves all loops of a process from one queue: a loop that ends must not trouble the rest."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest

import omnirelay
from omnirelay.mesh import wire
from omnirelay.model.errors import OutcomeUnknown
from omnirelay.model.ports import SystemClock
from omnirelay.rpc.meta import Request, Stream
from omnirelay.transports.grpc_outbound import GrpcOutbound
from tests.wire.grpc_served import asking, served
from tests.wire.http_echo import From, Say

LOOPS = 30
CALLS = 20
BOUND_S = 15.0


class Mishaps(list[str]):
    """What the exception handlers of loops were told."""

    def watch(self) -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: self.append(repr(context)))


@contextmanager
def _node_in_a_thread(mishaps: Mishaps) -> Iterator[str]:
    """The address of a node whose loop lasts, and gets to pass on the news of the others."""
    began, addresses = threading.Event(), list[str]()
    ends: list[Callable[[], object]] = []

    async def serve() -> None:
        mishaps.watch()
        end = asyncio.Event()
        async with served() as node:
            ends.append(partial(asyncio.get_running_loop().call_soon_threadsafe, end.set))
            addresses.append(node.inbound.url)
            began.set()
            await end.wait()

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    try:
        assert began.wait(BOUND_S)
        yield addresses[0]
    finally:
        for end in ends:
            end()
        thread.join(BOUND_S)
    assert not thread.is_alive()


async def _single(outbound: GrpcOutbound) -> None:
    blocked = asking("resourcelease::lease", wire.LeaseRequest(wait_ms=60_000), outbound)
    await outbound(blocked)


async def _streamed(outbound: GrpcOutbound, begun: Callable[[], object]) -> None:
    stream = await outbound(asking("echo::follow", From(), outbound))
    assert isinstance(stream, Stream)
    begun()
    async for _ in stream.messages:
        pass


async def _talking(outbound: GrpcOutbound, begun: Callable[[], object]) -> None:
    async def words() -> Any:
        while True:
            yield outbound.codec.encode(Say("a" * 1000))

    meta = asking("echo::talk", Say(), outbound).meta
    stream = await outbound(Request(meta, codec=outbound.codec, inbound=words()))
    assert isinstance(stream, Stream)
    async for _ in stream.messages:
        begun()


async def _cut(url: str, mishaps: Mishaps, kind: str, *, stops: bool) -> None:
    """Half of the calls are cancelled, half end with the outbound, or with the loop."""
    mishaps.watch()
    outbound = GrpcOutbound(url, clock=SystemClock(), typed=False)
    await outbound.start()
    begun = asyncio.Semaphore(0)
    call: Callable[[], Awaitable[None]]
    match kind:
        case "single":
            call = partial(_single, outbound)
            begun.release()
        case "stream":
            call = partial(_streamed, outbound, begun.release)
        case _:
            call = partial(_talking, outbound, begun.release)
    calls = [asyncio.ensure_future(call()) for _ in range(CALLS)]
    await outbound(asking("echo::say", Say(), outbound))
    await asyncio.wait_for(begun.acquire(), BOUND_S)
    for one in calls[::2]:
        one.cancel()
    if not stops:
        return
    await outbound.stop()
    ended = await asyncio.wait_for(asyncio.gather(*calls, return_exceptions=True), BOUND_S)
    assert {type(one) for one in ended} <= {asyncio.CancelledError, OutcomeUnknown}


@pytest.mark.parametrize("stops", [True, False], ids=["stopped", "left open"])
@pytest.mark.parametrize("kind", ["single", "stream", "duplex"])
def test_loops_that_close_on_cut_calls_trouble_no_other_loop(kind: str, stops: bool) -> None:
    mishaps = Mishaps()
    with _node_in_a_thread(mishaps) as url:
        for _ in range(LOOPS):
            asyncio.run(_cut(url, mishaps, kind, stops=stops))
    assert mishaps == []


async def _watching(relay: omnirelay.Relay) -> None:
    async for _ in relay.events():
        pass


def test_a_program_may_run_one_loop_after_another_over_grpc() -> None:
    mishaps = Mishaps()

    async def gives_up(url: str) -> None:
        mishaps.watch()
        async with omnirelay.connect(url) as relay:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05), relay.lease(wait=30):
                    pass
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(_watching(relay), 0.05)

    async def works(url: str) -> None:
        mishaps.watch()
        async with omnirelay.connect(url) as relay:
            await relay.enqueue("table", "orders")
            async with relay.lease(wait=BOUND_S) as lease:
                assert lease is not None

    with _node_in_a_thread(mishaps) as url:
        for _ in range(5):
            asyncio.run(gives_up(url))
            asyncio.run(works(url))
    assert mishaps == []
