"""A mesh of real nodes, each a process of its own, with links that can be cut between them."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any

from omnirelay.cli.free_ports import LOOPBACK, free_port
from omnirelay.testing.cluster_links import Link, Links, links

NAMESPACE = "resourcelease"
START_S = 30.0
_LOOK_S = 0.02


class ClusterNode:
    """It may be killed, stopped and started again over the same address."""

    def __init__(self, name: str, folder: Path, journal: str, flags: Sequence[str]) -> None:
        self.name = name
        self.stream = free_port()
        self.http = free_port()
        self.starts = 0
        self._ready = folder / f"{name}.json"
        self._log = folder / f"{name}.log"
        self._flags = [
            *("--node-id", name, "--journal", journal, "--ready-file", str(self._ready)),
            *("--stream", f"{LOOPBACK}:{self.stream}", "--http", f"{LOOPBACK}:{self.http}"),
            *("--set", "grpc=", "--log-level", "info", "--data", str(folder)),
            *flags,
        ]
        self._child: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"stream://{LOOPBACK}:{self.stream}"

    @property
    def log(self) -> str:
        return self._log.read_text(errors="replace")

    @property
    def is_running(self) -> bool:
        return self._child is not None and self._child.poll() is None

    def launch(self, *more: str) -> None:
        """Does not wait until it is ready."""
        assert not self.is_running
        self._ready.unlink(missing_ok=True)
        command = [sys.executable, "-m", "omnirelay.cli", "serve", *self._flags, *more]
        clean = {k: v for k, v in os.environ.items() if not k.startswith("OMNIRELAY_")}
        with self._log.open("ab") as log:
            self._child = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=clean
            )
        self.starts += 1

    def await_ready(self) -> None:
        until = time.monotonic() + START_S
        while not self._ready.exists():
            assert self.is_running, f"{self.name} ended: {self.log[-2000:]}"
            assert time.monotonic() < until, f"{self.name} is not ready: {self.log[-2000:]}"
            time.sleep(_LOOK_S)

    def send(self, number: signal.Signals) -> None:
        assert self._child is not None
        os.kill(self._child.pid, number)

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        self.send(number)
        assert self._child is not None
        code = self._child.wait(START_S)
        self._child = None
        return code

    def close(self) -> None:
        if self._child is not None:
            self._child.kill()
            self._child.wait(START_S)
            self._child = None

    def page(self, path: str) -> Any:
        """Any: JSON. Raises OSError if it does not answer."""
        with closing(HTTPConnection(LOOPBACK, self.http, timeout=2)) as connection:
            connection.request("GET", path)
            return json.load(connection.getresponse())


class ClusterMesh:
    def __init__(self, nodes: list[ClusterNode], doors: list[Link], to_store: list[Link]) -> None:
        self.nodes = nodes
        self.doors = doors
        """What other nodes call each of them through."""
        self.to_store = to_store
        """What each of them reaches the store through, where that is one address."""

    @property
    def urls(self) -> list[str]:
        return [node.url for node in self.nodes]

    def start(self) -> None:
        for node in self.nodes:
            node.launch()
        for node in self.nodes:
            node.await_ready()

    def named(self, name: str) -> ClusterNode:
        return next(node for node in self.nodes if node.name == name)

    def place(self, node: ClusterNode) -> int:
        return self.nodes.index(node)

    def rows(self, but: ClusterNode | None = None) -> list[dict[str, Any]]:
        """What the nodes say of the shard, but for those that do not answer. Any: JSON."""
        found = []
        for node in self.nodes:
            if node is but or not node.is_running:
                continue
            try:
                found += node.page("/omnirelay/control/shards")["shards"]
            except (OSError, HTTPException):
                continue
        return found

    async def owner(self, but: ClusterNode | None = None) -> ClusterNode:
        """Of the newest epoch that anybody but that one knows; waits until there is one."""
        async with asyncio.timeout(START_S):
            while True:
                rows = await asyncio.to_thread(self.rows, but)
                newest = max(rows, key=lambda row: int(row["epoch"]), default=None)
                if newest is not None and newest["leader"] and newest["role"]:
                    owner = self.named(newest["leader"])
                    if owner is not but and owner.is_running:
                        return owner
                await asyncio.sleep(_LOOK_S)


@contextmanager
def cluster_mesh(
    folder: Path,
    journal: Callable[[int | None], str],
    count: int,
    *flags: str,
    epoch_s: float = 2.0,
    store_port: int | None = None,
) -> Iterator[ClusterMesh]:
    """Not started yet. `journal(port)` is its address, by the way of `port` where the store listens
    on one."""
    with links() as between:
        nodes, doors, to_store = [], [], []
        for number in range(count):
            way = _way(between, store_port)
            if way is not None:
                to_store.append(way)
            own = ("--epoch-s", str(epoch_s), *flags)
            address = journal(None if way is None else way.port)
            nodes.append(ClusterNode(f"n{number}", folder, address, own))
        doors = [between.to(node.stream) for node in nodes]
        for node, door in zip(nodes, doors, strict=True):
            others = [other for other in doors if other is not door]
            peers = [word for one in others for word in ("--peer", _address(one))]
            node._flags += ["--advertise", _address(door), *peers]
        try:
            yield ClusterMesh(nodes, doors, to_store)
        finally:
            for node in nodes:
                node.close()


def _way(between: Links, store_port: int | None) -> Link | None:
    return None if store_port is None else between.to(store_port)


def _address(link: Link) -> str:
    return f"stream://{LOOPBACK}:{link.port}"
