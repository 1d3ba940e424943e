"""`/readyz` says whether a call would be served, not only whether somebody listens."""

import asyncio
import threading
from collections.abc import Iterator

import pytest

from omnirelay.lease.commands import Enqueue
from omnirelay.mesh.calls import Call
from omnirelay.model import limits
from omnirelay.model.errors import DiskFull
from omnirelay.model.items import Payload
from omnirelay.model.ports import set_failpoint
from omnirelay.node import watch
from omnirelay.node.node import Node
from omnirelay.node.run import _until_settled
from tests.cluster.pairs import until
from tests.wire.control_node import ask, node
from tests.wire.real_node import node_settings

WORK = Enqueue(payload=Payload("table", "orders"))


async def until_ready_is(opened: Node, status: int) -> bytes:
    """A node tells nobody when it becomes unready: it has to be asked."""
    async with asyncio.timeout(10):
        while True:
            answer = await ask(opened, "GET", "/readyz")
            if answer.status == status:
                return answer.body


@pytest.fixture
def hung(request: pytest.FixtureRequest) -> Iterator[threading.Event]:
    """The shard's own thread waits for it at a named place; the node's loop goes on."""
    let_go, ours = threading.Event(), threading.get_ident()

    def wait(name: str) -> None:
        if name == request.param and threading.get_ident() != ours:
            assert let_go.wait(15)

    set_failpoint(wait)
    yield let_go
    let_go.set()
    set_failpoint(None)


@pytest.mark.parametrize("hung", ["shard.before_append"], indirect=True)
async def test_a_node_whose_commit_hangs_is_not_ready_until_it_goes_on(
    hung: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "ANSWER_S_MAX", 0.1)
    monkeypatch.setattr(watch, "REFRESH_S", 0.01)
    async with node() as opened:
        await until_ready_is(opened, 200)
        opened._engines["resourcelease"].offer(Call([WORK]))
        said = await until_ready_is(opened, 503)
        assert b"answered nobody" in said
        hung.set()
        await until_ready_is(opened, 200)


@pytest.mark.parametrize("hung", ["recover.after_snapshot"], indirect=True)
async def test_a_node_that_reads_its_journal_answers_that_it_is_not_ready_yet(
    hung: threading.Event,
) -> None:
    opening = Node(node_settings(grpc="", stream=""))
    opened = asyncio.create_task(opening.__aenter__())
    try:
        await until(lambda: "http" in opening.urls)
        assert b"starting" in await until_ready_is(opening, 503)
        assert (await ask(opening, "GET", "/healthz")).status == 200
        refused = await ask(opening, "POST", "/v1/resourcelease/stats", b"{}")
        assert (refused.status, refused.headers["retry-after"]) == (503, "1")
        assert (await ask(opening, "GET", "/omnirelay/introspect")).status == 503
        assert not opened.done()
        hung.set()
        await opened
        await until_ready_is(opening, 200)
        assert (await ask(opening, "POST", "/v1/resourcelease/stats", b"{}")).status == 200
    finally:
        hung.set()
        await opened
        await opening.__aexit__(None, None, None)


async def test_the_ready_file_waits_until_the_node_is_ready_or_told_to_stop() -> None:
    async with node() as opened:
        shard = opened._engines["resourcelease"].shard
        shard.failure = DiskFull("there is no room")
        stopping = asyncio.Event()
        ready, stopped = (
            asyncio.create_task(_until_settled(opened, event))
            for event in (asyncio.Event(), stopping)
        )
        await until_ready_is(opened, 503)
        stopping.set()
        assert not await stopped
        assert not ready.done()
        shard.failure = None
        assert await ready
        await until_ready_is(opened, 200)
