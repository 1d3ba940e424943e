"""A real node on a loop in a thread of its own, for tools that know no loop."""

import asyncio
import threading
from typing import Self

from omnirelay.node.node import Node
from omnirelay.node.settings import NodeSettings


class NodeApart:
    def __init__(self, *, http: str = "", grpc: str = "", stream: str = "") -> None:
        self.urls: dict[str, str] = {}
        self._settings = NodeSettings(
            http=http, grpc=grpc, stream=stream, journal="memory:", node_id="apart", grace_s=0.2
        )
        self._ready = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self._run(),))

    async def _run(self) -> None:
        async with Node(self._settings) as node:
            self.urls = node.urls
            self._ready.set()
            await self._stop.wait()

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(8)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(8)
        self._loop.close()
