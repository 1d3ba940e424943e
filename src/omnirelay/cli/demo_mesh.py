"""The cluster demo's processes: a store that several nodes can share, and the nodes."""

import asyncio
import shutil
import sysconfig
from pathlib import Path
from typing import Final

from omnirelay.cli.demo_crew import Crew, Part
from omnirelay.cli.ending import CommandFailed
from omnirelay.cli.free_ports import LOOPBACK, free_port

NAMES: Final = ("a", "b", "c")
EPOCH_S: Final = 2.0
_CONFIG: Final = """
listen: {host}:{port}
max_payload: 8MB
jetstream {{ store_dir: "{folder}", sync_interval: always }}
"""


class MeshCrew:
    """`crew` keeps the processes; whoever leaves its context ends them."""

    def __init__(self, crew: Crew) -> None:
        self._crew = crew
        self._streams = {name: free_port() for name in NAMES}
        self.journal = ""
        self.store = ""
        """In words."""
        self.nodes: dict[str, Part] = {}

    @property
    def urls(self) -> list[str]:
        return [f"stream://{LOOPBACK}:{port}" for port in self._streams.values()]

    async def start_store(self) -> None:
        """NATS, if its server is installed; else objects in a folder, which need no server."""
        program = _nats_server()
        if program is None:
            self.journal = f"file://{self._crew.folder}/journal"
            self.store = "objects in a folder, written if absent"
            return
        port = free_port()
        config = self._crew.folder / "nats.conf"
        text = _CONFIG.format(host=LOOPBACK, port=port, folder=self._crew.folder / "jetstream")
        await asyncio.to_thread(config.write_text, text)
        server = await self._crew.spawn("nats-server", "", program, "-c", str(config))
        await _answers(server, port)
        self.journal = f"nats://{LOOPBACK}:{port}/DEMO"
        self.store = "NATS JetStream, which syncs every append"

    async def start_all(self) -> None:
        await asyncio.gather(*(self.start(name) for name in NAMES))

    async def start(self, name: str) -> Part:
        """Returns when it is ready: it owns the queue, or follows whoever does."""
        ready = self._crew.folder / f"{name}.json"
        ready.unlink(missing_ok=True)
        peers = [word for url in self.urls for word in ("--peer", url)]
        node = await self._crew.serve(
            name,
            *("--journal", self.journal, "--ready-file", str(ready), "--node-id", name),
            *("--stream", f"{LOOPBACK}:{self._streams[name]}", "--http", f"{LOOPBACK}:0"),
            *("--set", "grpc=", "--epoch-s", str(EPOCH_S), *peers),
        )
        if not await self._crew.is_ready(node, ready):
            raise CommandFailed(f"node {name} does not start: {node.last_words()}")
        self.nodes[name] = node
        return node


def _nats_server() -> str | None:
    own = Path(sysconfig.get_path("scripts")) / "nats-server"
    return str(own) if own.exists() else shutil.which("nats-server")


async def _answers(server: Part, port: int) -> None:
    while server.exit_code is None:
        try:
            _, writer = await asyncio.open_connection(LOOPBACK, port)
        except OSError:
            await asyncio.sleep(0.02)
            continue
        writer.close()
        return
    raise CommandFailed(f"nats-server does not start: {server.last_words()}")
