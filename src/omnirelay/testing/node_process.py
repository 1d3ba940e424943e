"""Real nodes for tests: on a thread of this process, or as a process of their own."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from omnirelay.cli.free_ports import free_ports
from omnirelay.lease.options import QueueOptions
from omnirelay.mesh.keeper import KeepOptions
from omnirelay.node.node import Node
from omnirelay.node.settings import NamespaceSettings, NodeSettings
from omnirelay.sdk.threads import LoopThread

WIRES = ("stream", "http", "grpc")
START_S = 15.0


def settings_of(
    wires: tuple[str, ...],
    journal: str,
    options: QueueOptions | None = None,
    keep: KeepOptions | None = None,
) -> NodeSettings:
    doors = {wire: "127.0.0.1:0" if wire in wires else "" for wire in WIRES}
    queue = NamespaceSettings(options=options or QueueOptions(), keep=keep or KeepOptions())
    return NodeSettings(
        **doors,  # type: ignore[arg-type]
        journal=journal,
        namespaces={"resourcelease": queue},
        grace_s=0.2,
    )


@contextmanager
def node_thread(settings: NodeSettings) -> Iterator[Node]:
    """A node on a loop of its own, so that a test that blocks its own loop does not block it."""
    thread = LoopThread("test-node")
    try:
        node = thread.call(_opened(settings))
        try:
            yield node
        finally:
            thread.call(node.__aexit__(None, None, None))
    finally:
        thread.stop()


async def _opened(settings: NodeSettings) -> Node:
    return await Node(settings).__aenter__()


class NodeProcess:
    """A node that can be killed and started again on the same data and ports."""

    def __init__(self, data: Path, *, options: dict[str, Any] | None = None) -> None:
        self.data = data
        self._ready = data / "ready.json"
        self._log = data / "node.log"
        self._settings = {
            "data": str(data),
            "ready_file": str(self._ready),
            "grace_s": 5.0,
            "namespaces": {"resourcelease": {"options": options or {}}},
            **{wire: f"127.0.0.1:{port}" for wire, port in zip(WIRES, free_ports(3), strict=True)},
        }
        self._child: subprocess.Popen[bytes] | None = None
        self.starts = 0
        self.kills = 0

    def url(self, wire: str) -> str:
        return f"{wire}://{self._settings[wire]}"

    @property
    def urls(self) -> dict[str, str]:
        return {wire: self.url(wire) for wire in WIRES}

    @property
    def journal(self) -> str:
        return f"sqlite:///{self.data}/resourcelease.db"

    def start(self) -> None:
        """Returns when it serves."""
        self._ready.unlink(missing_ok=True)
        command = [
            sys.executable,
            "-m",
            "omnirelay.testing.node_process",
            json.dumps(self._settings),
        ]
        with self._log.open("ab") as log:
            self._child = subprocess.Popen(command, stdout=log, stderr=log)
        self.starts += 1
        until = time.monotonic() + START_S
        while not self._ready.exists():
            assert self._child.poll() is None, self._log.read_text()
            assert time.monotonic() < until, "the node did not start in time"
            time.sleep(0.01)

    def kill(self) -> None:
        """As a machine that is switched off: nothing is finished."""
        self.kills += 1
        assert self.end(signal.SIGKILL) == -signal.SIGKILL

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        assert self._child is not None
        os.kill(self._child.pid, number)
        code = self._child.wait(START_S)
        self._child = None
        return code

    def pause(self) -> None:
        assert self._child is not None
        os.kill(self._child.pid, signal.SIGSTOP)

    def resume(self) -> None:
        assert self._child is not None
        os.kill(self._child.pid, signal.SIGCONT)

    async def start_soon(self) -> None:
        await asyncio.to_thread(self.start)

    def close(self) -> None:
        if self._child is not None and self._child.poll() is None:
            self._child.kill()
            self._child.wait(START_S)


@contextmanager
def node_process(data: Path, **options: Any) -> Iterator[NodeProcess]:
    """Not started yet."""
    node = NodeProcess(data, options=options)
    try:
        yield node
    finally:
        node.close()


def main() -> None:
    import msgspec

    from omnirelay.node.run import serve

    serve(msgspec.convert(json.loads(sys.argv[1]), NodeSettings))


if __name__ == "__main__":
    main()
