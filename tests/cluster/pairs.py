"""Two nodes of one process over one journal of objects: the first owns it, the second follows."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

from omnirelay.cli.free_ports import free_ports
from omnirelay.lease.options import QueueOptions
from omnirelay.node.node import Node
from omnirelay.node.settings import MeshSettings
from tests.wire.real_node import NAMESPACE, node

OPTIONS = QueueOptions(requeue_delay_ms=0, lease_duration_ms=600_000)
EPOCH_S = 1.0


class Pair(NamedTuple):
    owner: Node
    follower: Node


@asynccontextmanager
async def pair(
    folder: Path,
    *,
    scheme: str = "stream",
    server_id: str | None = None,
    patience_s: float = 10.0,
    **changed: Any,
) -> AsyncGenerator[Pair]:
    """They know each other, and neither has settled enough to be handed a queue by the other. Any:
    fields of NodeSettings."""
    ports = free_ports(2)
    urls = tuple(f"{scheme}://127.0.0.1:{port}" for port in ports)
    shared = {
        "journal": f"file://{folder}/journal",
        "mesh": MeshSettings(peers=urls, epoch_s=EPOCH_S, server_id=server_id),
        **changed,
    }
    places = [f"127.0.0.1:{port}" for port in ports]
    async with (
        node(OPTIONS, node_id="a", stream=places[0], **shared) as first,
        node(OPTIONS, node_id="b", stream=places[1], **shared) as second,
    ):
        assert first.shards[NAMESPACE].status().role == "owner"
        assert second.shards[NAMESPACE].status().role == "follower"
        await until(
            lambda: all(row.is_answering for row in [*first.others, *second.others]), patience_s
        )
        yield Pair(first, second)


async def until(is_so: Callable[[], bool], seconds: float = 10.0) -> None:
    """Nodes tell nobody what they have noticed: it has to be looked for."""
    async with asyncio.timeout(seconds):
        while not is_so():
            await _a_moment()


async def _a_moment() -> None:
    await asyncio.sleep(0.01)


def roles(nodes: Pair) -> list[str]:
    return [one.shards[NAMESPACE].status().role for one in nodes]
