"""A node that is killed again and again under traffic: nothing is lost, nothing is doubled."""

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

import omnirelay
from omnirelay import Relay
from omnirelay.testing import figures
from omnirelay.testing.node_process import WIRES, NodeProcess, node_process
from tests.wire.crowd import Crowd, Verdict

KILLS = 5
BETWEEN_S = 0.5


@pytest.fixture
def node(tmp_path: Path) -> Iterator[NodeProcess]:
    with node_process(
        tmp_path, lease_duration_ms=3000, requeue_delay_ms=0, max_attempts=1000
    ) as node:
        node.start()
        yield node


def judged(node: NodeProcess, crowd: Crowd) -> Verdict:
    """By the journal alone: the node has stopped."""
    command = [sys.executable, "-m", "omnirelay.cli", "journal", "verify", node.journal]
    verified = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert verified.returncode == 0, verified.stdout + verified.stderr
    with omnirelay.connect_sync(node.journal) as queue:
        verdict = Verdict(crowd, list(queue.events()))
    verdict.check()
    return verdict


async def traffic(node: NodeProcess, crowd: Crowd, trouble: "asyncio.Task[None]") -> None:
    """Two producers, a worker and a hand at work over each wire, and a thread, until `trouble` is
    over and everything is done."""
    async with AsyncExitStack() as stack, asyncio.TaskGroup() as tasks:

        async def opened(wire: str) -> Relay:
            return await stack.enter_async_context(omnirelay.connect(node.url(wire)))

        workers, producers = [], []
        for wire in WIRES:
            for number in range(2):
                producing = crowd.produce(await opened(wire), f"{wire}{number}")
                producers.append(tasks.create_task(producing))
            queue = await asyncio.to_thread(omnirelay.connect_sync, node.url(wire))
            stack.push_async_callback(asyncio.to_thread, queue.close)
            threaded = asyncio.to_thread(crowd.produce_in_thread, queue, f"{wire}-thread")
            producers.append(tasks.create_task(threaded))
            tasks.create_task(crowd.work_by_hand(await opened(wire)))
            workers.append(crowd.worker(await opened(wire)))
            tasks.create_task(workers[-1].run())
        await trouble
        crowd.enough.set()
        await asyncio.wait(producers)
        await crowd.emptied(await opened("stream"))
        for worker in workers:
            worker.stop()


async def kill_and_start(node: NodeProcess) -> None:
    for _ in range(KILLS):
        await asyncio.sleep(BETWEEN_S)
        node.kill()
        await node.start_soon()
    await asyncio.sleep(BETWEEN_S)


@pytest.mark.timeout(90)
async def test_clients_that_retry_through_kills_lose_and_double_nothing(node: NodeProcess) -> None:
    crowd = Crowd()
    await traffic(node, crowd, asyncio.create_task(kill_and_start(node)))
    assert node.end() == 0
    verdict = judged(node, crowd)
    assert not crowd.refused
    assert not crowd.duplicates, "nobody gave a request id"
    assert set(crowd.accepted) <= set(crowd.done)
    assert verdict.epochs - 1 == node.starts == KILLS + 1, "and the judge's own"
    figures.record(
        "restarts",
        kills=node.kills,
        items=verdict.items,
        acknowledged_lost=len(verdict.lost),
        doubled=len(verdict.doubled),
        worked_twice=sum(count > 1 for count in crowd.done.values()),
    )


async def stop_and_start(node: NodeProcess) -> None:
    for _ in range(3):
        await asyncio.sleep(BETWEEN_S)
        assert await asyncio.to_thread(node.end) == 0
        await node.start_soon()
    await asyncio.sleep(BETWEEN_S)


@pytest.mark.timeout(60)
async def test_clients_do_not_notice_a_graceful_restart(node: NodeProcess) -> None:
    crowd = Crowd()
    await traffic(node, crowd, asyncio.create_task(stop_and_start(node)))
    assert node.end() == 0
    verdict = judged(node, crowd)
    assert not crowd.refused
    assert not crowd.stale
    assert verdict.epochs - 1 == node.starts == 4
