"""A mesh of real nodes, each a process of its own, with roads that can be cut between them."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any

from omnirelay.cli.free_ports import free_port
from omnirelay.testing.cluster_links import links
from omnirelay.testing.cluster_net import Net, Road
from omnirelay.testing.cluster_process import clock_of, roads_of, state_of
from omnirelay.testing.host import HERE, Host, bound_to_us
from omnirelay.testing.servers import Server

NAMESPACE = "resourcelease"
START_S = 30.0
_LOOK_S = 0.02


class ClusterNode:
    """It may be killed, stopped and started again over the same address."""

    def __init__(
        self, name: str, host: Host, folder: Path, journal: str, flags: Sequence[str]
    ) -> None:
        self.name = name
        self.host = host
        self.stream = free_port()
        self.http = free_port()
        self.starts = 0
        self.environment: dict[str, str] = {}
        """What it has beyond ours, from its next start on."""
        self._prefix = folder / name
        self._ready = folder / f"{name}.json"
        self._log = folder / f"{name}.log"
        self._flags = [
            *("--node-id", name, "--journal", journal, "--ready-file", str(self._ready)),
            *("--stream", f"{host.address}:{self.stream}"),
            *("--http", f"{host.address}:{self.http}"),
            *("--set", "grpc=", "--log-level", "info", "--data", str(folder)),
            *(() if host == HERE else ("--insecure",)),  # nobody else is in a test's own network
            *flags,
        ]
        self._child: subprocess.Popen[bytes] | None = None
        self._program: tuple[str, ...] = ("omnirelay.testing.cluster_process", str(self._prefix))

    def be_plain(self) -> None:
        """From its next start on it is what `omnirelay` starts and nothing else, of any version:
        its clock and its roads cannot be bent, and it does not tell what it held."""
        self._program = ("omnirelay.cli",)

    @property
    def url(self) -> str:
        return f"stream://{self.host.address}:{self.stream}"

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
        command = [sys.executable, "-m", *self._program, "serve", *self._flags, *more]
        clean = {k: v for k, v in os.environ.items() if not k.startswith("OMNIRELAY_")}
        with self._log.open("ab") as log:
            self._child = subprocess.Popen(
                bound_to_us(command, self.host),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=clean | self.environment,
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

    def join(self, roads: Mapping[str, str]) -> None:
        """Whom it reaches and by which road, from its next start on."""
        roads_of(self._prefix).write_text(json.dumps(dict(roads)))
        peers = [word for url in roads for word in ("--peer", url)]
        self._flags = [*self._flags, "--advertise", self.url, *peers]

    def shift_clock(self, off_s: float) -> None:
        """What it takes for the time of day jumps, now, by so much from what it is."""
        path = clock_of(self._prefix)
        aside = path.with_suffix(".aside")
        aside.write_text(str(round(off_s * 1000)))
        aside.replace(path)

    def told_state(self) -> dict[str, tuple[int, str]]:
        """By namespace what it held when it was last told to stop: the sequence and all facts."""
        path = state_of(self._prefix)
        return json.loads(path.read_text()) if path.exists() else {}

    def page(self, path: str) -> Any:
        """Any: JSON. Raises OSError if it does not answer."""
        with closing(HTTPConnection(self.host.address, self.http, timeout=2)) as connection:
            connection.request("GET", path)
            return json.load(connection.getresponse())


class ClusterMesh:
    """Whoever calls somebody else does so by a road that can be cut."""

    def __init__(self, nodes: list[ClusterNode], net: Net, to_store: list[list[Road]]) -> None:
        self.nodes = nodes
        self.to_store = to_store
        """What each node reaches the store by, if roads lead there: one a server."""
        self.gates = [net.road(net.callers, node.host, node.stream) for node in nodes]
        """What callers reach each node by."""
        self._roads = {
            (here.name, there.name): net.road(here.host, there.host, there.stream)
            for here in nodes
            for there in nodes
            if here is not there
        }
        for node in nodes:
            others = (other for other in nodes if other is not node)
            node.join({one.url: _address(self._roads[node.name, one.name]) for one in others})

    @property
    def urls(self) -> list[str]:
        """For callers, each by its gate."""
        return [_address(gate) for gate in self.gates]

    def roads_to(self, node: ClusterNode) -> list[Road]:
        """By which other nodes call it."""
        return [road for (_, there), road in self._roads.items() if there == node.name]

    def all_roads_of(self, node: ClusterNode) -> list[Road]:
        """With callers, other nodes in either direction, and the store."""
        roads = [road for ends, road in self._roads.items() if node.name in ends]
        return [self.gates[self.place(node)], *roads, *self.store_roads_of(node)]

    def store_roads_of(self, node: ClusterNode) -> list[Road]:
        return self.to_store[self.place(node)] if self.to_store else []

    @property
    def all_roads(self) -> list[Road]:
        to_store = [road for roads in self.to_store for road in roads]
        return [*self.gates, *self._roads.values(), *to_store]

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
    journal: Callable[[Sequence[str]], str],
    count: int,
    *flags: str,
    epoch_s: float = 2.0,
    net: Net | None = None,
    store: Sequence[Server] = (),
) -> Iterator[ClusterMesh]:
    """Not started yet; over links, if there is no `net`. `journal(places)` is its address, by
    these `host:port` in place of those that the servers of the store listen on."""
    own = ("--epoch-s", str(epoch_s), *flags)
    with ExitStack() as held:
        between = net or held.enter_context(links())
        nodes: list[ClusterNode] = []
        to_store: list[list[Road]] = []
        for number in range(count):
            host = between.host()
            roads = [between.road(host, server.host, server.port) for server in store]
            address = journal([road.place for road in roads])
            nodes.append(ClusterNode(f"n{number}", host, folder, address, own))
            to_store.append(roads)
            held.callback(nodes[-1].close)
        yield ClusterMesh(nodes, between, to_store if store else [])


def _address(road: Road) -> str:
    return f"stream://{road.place}"
