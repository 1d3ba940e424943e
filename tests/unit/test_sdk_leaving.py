"""When calls leave, and what has ended before a report does."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

import omnirelay
from omnirelay.lease.commands import Command
from omnirelay.sdk.batching import Batcher
from omnirelay.sdk.client import Relay
from omnirelay.sdk.lease import Lease


class Sending:
    """Answers at once, unless it is told to wait."""

    def __init__(self) -> None:
        self.sent: list[list[str]] = []
        self.go_on: asyncio.Event | None = None

    async def __call__(self, commands: Sequence[str]) -> Any:
        """Any: as many outcomes, of whatever kind."""
        self.sent.append(list(commands))
        if self.go_on is not None:
            await self.go_on.wait()
        return list(commands)


@pytest.mark.parametrize("is_prompt", [True, False])
async def test_a_lone_call_leaves_and_is_answered_in_the_turn_it_was_made(is_prompt: bool) -> None:
    loop, send, turns = asyncio.get_running_loop(), Sending(), [0]
    batcher: Batcher[str] = Batcher(loop, send, is_prompt=is_prompt)
    for _ in range(3):
        loop.call_soon(turns.append, 1)
        answers: Any = await batcher.call(["a"])
        assert answers == ["a"]
        assert turns == [0], "the loop went on to its next turn"
        await asyncio.sleep(0)
        turns[1:] = []


async def test_calls_of_one_turn_travel_together_and_no_timer_is_set(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loop, send, timers = asyncio.get_running_loop(), Sending(), list[object]()
    batcher: Batcher[str] = Batcher(loop, send)
    monkeypatch.setattr(loop, "call_at", lambda *args, **_: timers.append(args))
    monkeypatch.setattr(loop, "call_later", lambda *args, **_: timers.append(args))
    await batcher.call(["alone"])
    send.go_on = asyncio.Event()
    first = asyncio.ensure_future(batcher.call(["first"]))
    await asyncio.sleep(0)
    others = asyncio.gather(*(batcher.call([f"{number}"]) for number in range(3)))
    await asyncio.sleep(0)
    send.go_on.set()
    await asyncio.gather(first, others)
    assert send.sent == [["alone"], ["first"], ["0", "1", "2"]]
    assert timers == []


def is_renewed(relay: Relay, lease: Lease) -> bool:
    return any(id(lease) in bucket for bucket in relay.heart._ticks.values())


@pytest.mark.parametrize("end", ["complete", "fail", "release"])
async def test_a_lease_is_no_longer_renewed_when_its_end_is_reported(
    end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a heartbeat could overtake the report, and tell a worker that its lease is lost."""
    seen: list[bool] = []
    report = Relay.one

    async def look(relay: Relay, command: Command) -> Any:
        seen.append(is_renewed(relay, lease) or not lease.is_over)
        return await report(relay, command)

    async with await omnirelay.connect("memory:") as relay:
        await relay.enqueue("table", "a")
        lease = await relay.lease()
        assert is_renewed(relay, lease)
        monkeypatch.setattr(Relay, "one", look)
        await getattr(lease, end)()
    assert seen == [False]
