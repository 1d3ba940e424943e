"""Readers of a node's events keep their place there, over every wire."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from omnirelay.mesh import wire
from omnirelay.model import limits
from omnirelay.model.errors import InvalidArgument, ResourceExhausted
from omnirelay.node.node import Node
from tests.wire.real_node import NAMESPACE, WIRES, Caller, caller, node


@pytest.fixture
async def opened() -> AsyncIterator[Node]:
    async with node() as one:
        yield one


@pytest.fixture(params=WIRES)
async def call(opened: Node, request: pytest.FixtureRequest) -> AsyncIterator[Caller]:
    async with caller(opened, request.param) as one:
        yield one


async def test_a_reader_keeps_its_place_at_the_node(opened: Node, call: Caller) -> None:
    await call.enqueue("a")
    ask = wire.PositionRequest("lake")
    assert (await call("position", ask)).sequence is None
    assert (await call("position", wire.PositionRequest("lake", 1))).sequence == 1
    assert (await call("position", wire.PositionRequest("lake", 0))).sequence == 1
    assert (await call("position", ask)).sequence == 1
    shown = await asyncio.to_thread(opened.shards[NAMESPACE].followers)
    assert [(one.name, one.position, one.sequence_lag) for one in shown] == [("lake", 1, 1)]
    assert (await call("position", wire.PositionRequest("lake", forget=True))).sequence is None
    assert await asyncio.to_thread(opened.shards[NAMESPACE].followers) == []


async def test_a_reader_is_refused_that_is_nameless_the_nodes_own_or_one_too_many(
    call: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("", "mirror:eu", "region:primary"):
        with pytest.raises(InvalidArgument):
            await call("position", wire.PositionRequest(name, 1))
    monkeypatch.setattr(limits, "READERS_MAX", 1)
    await call("position", wire.PositionRequest("lake", 1))
    with pytest.raises(ResourceExhausted, match="forget some"):
        await call("position", wire.PositionRequest("sea", 1))
    assert (await call("position", wire.PositionRequest("lake", 2))).sequence == 2
