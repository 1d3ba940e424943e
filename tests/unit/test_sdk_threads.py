"""The end of a loop on a thread of its own."""

import asyncio

import pytest

from omnirelay.model.errors import Closed
from omnirelay.sdk import threads
from omnirelay.sdk.threads import LoopThread


async def _stubborn(swallowed: list[int]) -> None:
    while len(swallowed) < 2:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            swallowed.append(1)
    await asyncio.Event().wait()


def test_what_swallows_a_cancellation_is_cancelled_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "ONCE_MORE_S", 0.01)
    thread, swallowed = LoopThread("stubborn"), list[int]()
    work = thread.start(_stubborn(swallowed))
    thread.call(asyncio.sleep(0))
    thread.stop()
    assert (len(swallowed), work.cancelled()) == (2, True)


def test_nothing_is_started_on_one_that_was_stopped() -> None:
    thread = LoopThread("stopped")
    thread.stop()
    with pytest.raises(Closed):
        thread.start(asyncio.sleep(0))
