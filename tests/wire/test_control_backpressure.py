"""Backpressure: as it is, and as it changes."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import msgspec

from omnirelay.lease.options import QueueOptions
from omnirelay.node.node import Node
from omnirelay.ops import backpressure
from omnirelay.testing.raw_http import RawHttp, request_of
from omnirelay.transports.http_events import EventReader
from tests.wire.control_node import CONTROL, ask, call, enqueue, node, url_of

OPTIONS = QueueOptions(pending_high=2, pending_low=1, enqueue_wait_ms=0)
STREAM = f"{CONTROL}/backpressure/stream"


class Watcher:
    def __init__(self, raw: RawHttp) -> None:
        self._raw = raw
        self._reader = EventReader()
        self._ready: list[tuple[str, bytes]] = []

    async def next(self) -> Any:
        """Any: JSON."""
        while not self._ready:
            self._ready += self._reader.feed(await self._raw.chunk())
        name, data = self._ready.pop(0)
        assert name == "backpressure"
        return msgspec.json.decode(data)


@asynccontextmanager
async def watching(opened: Node) -> AsyncGenerator[Watcher]:
    async with RawHttp(url_of(opened)) as raw:
        await raw.send(request_of("GET", STREAM))
        head = await raw.head()
        assert (head.status, head.headers["content-type"]) == (200, "text/event-stream")
        yield Watcher(raw)


async def fill(opened: Node) -> None:
    for name in ("a", "b"):
        await enqueue(opened, name)


async def empty(opened: Node) -> None:
    for _ in range(2):
        lease = await call(opened, "lease", {})
        await call(opened, "complete", {"ownershipToken": lease["ownershipToken"]})


async def test_there_is_nothing_to_tell_before_the_first_transition() -> None:
    async with node(options=OPTIONS) as opened:
        answer = await ask(opened, "GET", f"{CONTROL}/backpressure")
    assert (answer.status, answer.body) == (204, b"")


async def test_the_latest_transition_and_the_levels_of_all_shards_are_shown() -> None:
    async with node(options=OPTIONS, namespaces=("resourcelease.users",)) as opened:
        async with watching(opened) as watcher:
            await fill(opened)
            await watcher.next()
        shown = await ask(opened, "GET", f"{CONTROL}/backpressure")
    answer = msgspec.json.decode(shown.body)
    assert answer["latest"].pop("atMs") > 0
    assert answer["latest"] == {
        "shard": "resourcelease",
        "number": 1,
        "state": "active",
        "pendingCount": 2,
    }
    assert answer["shards"][0] == {
        "shard": "resourcelease",
        "isActive": True,
        "pendingCount": 2,
        "pendingHigh": 2,
        "pendingLow": 1,
    }
    assert answer["shards"][1]["isActive"] is False


async def test_every_watcher_sees_every_transition_in_order() -> None:
    async with AsyncExitStack() as stack:
        opened = await stack.enter_async_context(node(options=OPTIONS))
        watchers = [await stack.enter_async_context(watching(opened)) for _ in range(5)]
        for _ in range(3):
            await fill(opened)
            await empty(opened)
        seen = [[await watcher.next() for _ in range(6)] for watcher in watchers]
    for events in seen:
        assert [(event["number"], event["state"]) for event in events] == [
            (1, "active"),
            (2, "inactive"),
            (3, "active"),
            (4, "inactive"),
            (5, "active"),
            (6, "inactive"),
        ]


async def test_who_comes_later_hears_the_latest_first() -> None:
    async with node(options=OPTIONS) as opened:
        async with watching(opened) as first:
            await fill(opened)
            await first.next()
        async with watching(opened) as second:
            assert (await second.next())["state"] == "active"
            await empty(opened)
            assert (await second.next())["state"] == "inactive"


async def test_one_watcher_too_many_is_refused_and_a_place_becomes_free_again() -> None:
    async with node(options=OPTIONS) as opened:
        async with AsyncExitStack() as stack:
            places = [watching(opened) for _ in range(backpressure.WATCHERS)]
            await asyncio.gather(*map(stack.enter_async_context, places))
            refused = await ask(opened, "GET", STREAM)
            assert refused.status == 429
            assert "retry-after" in refused.headers
        again = 429
        while again == 429:  # the node has not heard yet that they left
            again = await first_status(opened)
        assert again == 200


async def first_status(opened: Node) -> int:
    async with RawHttp(url_of(opened)) as raw:
        await raw.send(request_of("GET", STREAM))
        return (await raw.head()).status
