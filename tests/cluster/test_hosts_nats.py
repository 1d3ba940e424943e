"""Three nodes and three NATS servers, each on a host of its own: they die, the stream loses its
leader, hosts are gone from the network and nobody is told."""

import asyncio
import json
import urllib.request
from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path

import pytest

from omnirelay.model.errors import Unavailable
from omnirelay.stores import nats_link
from omnirelay.stores.nats_link import NatsLink
from omnirelay.stores.nats_read import NatsReader
from omnirelay.stores.registry import open_address
from omnirelay.testing.cluster_hosts import HostRoad, Hosts, hosts
from omnirelay.testing.cluster_nemesis import Nemesis
from omnirelay.testing.cluster_net import Road
from omnirelay.testing.cluster_nodes import ClusterMesh, cluster_mesh
from omnirelay.testing.cluster_runs import suffer
from omnirelay.testing.servers_nats import NatsServers, nats_servers

EPOCH_S = 2.0
LARGE = bytes(6 << 20)
LOOK_S = 0.1
_numbers = count()


class Store:
    """A stream of its own on servers that all tests share."""

    def __init__(self, servers: NatsServers) -> None:
        self.servers = servers
        self._stream = f"MESH{next(_numbers)}"

    def url(self, places: Sequence[str] = ()) -> str:
        return self.servers.url(self._stream, "&replicas=3", places=places)

    async def leader(self, but: str = "") -> str:
        """As those servers know that are not `but`, which is not it; waits until there is one."""
        asked = [
            one for one in self.servers.servers if not but or one is not self.servers.named(but)
        ]
        async with asyncio.timeout(60):
            while True:
                for server in asked:
                    name = await asyncio.to_thread(self._leader, server.monitor)
                    if name not in ("", but):
                        return name
                await asyncio.sleep(LOOK_S)

    def _leader(self, monitor: str) -> str:
        """Asked where it costs a server that has other troubles little."""
        with urllib.request.urlopen(f"{monitor}/jsz?streams=1", timeout=5) as answer:
            accounts = json.load(answer).get("account_details", [])
        streams = [one for account in accounts for one in account.get("stream_detail", [])]
        clusters = [one["cluster"] for one in streams if one["name"] == self._stream]
        return str(clusters[0].get("leader", "")) if clusters else ""


@pytest.fixture(scope="module")
def net() -> Iterator[Hosts]:
    with hosts() as net:
        yield net


@pytest.fixture(scope="module")
def servers(net: Hosts) -> Iterator[NatsServers]:
    with nats_servers(3, net=net) as servers:
        yield servers


@pytest.fixture
def store(servers: NatsServers) -> Store:
    return Store(servers)


@pytest.fixture
def mesh(net: Hosts, store: Store, tmp_path: Path) -> Iterator[ClusterMesh]:
    servers = store.servers.servers
    with cluster_mesh(tmp_path, store.url, 3, epoch_s=EPOCH_S, net=net, store=servers) as mesh:
        mesh.start()
        yield mesh


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, seconds in (("PING_S", 0.2), ("UNTAKEN_S", 0.5), ("REQUEST_S", 0.5)):
        monkeypatch.setattr(nats_link, name, seconds)


async def cut_the_streams_leader(store: Store, nemesis: Nemesis) -> None:
    """From its fellows: the nodes still reach it, and it must not take what they write."""
    name = await store.leader()
    nemesis.actions.append(f"cut server {name} from the others")
    await cut_until_another_leads(store.servers.roads_of(name), store, name)


async def lose_the_leaders_machine(net: Hosts, store: Store, nemesis: Nemesis) -> None:
    """Its power is cut: nobody hears a word of it, and it comes back with what it had synced."""
    name = await store.leader()
    nemesis.actions.append(f"lose the machine of server {name}")
    leader = store.servers.named(name)
    roads = net.roads_of(leader.host)
    for road in roads:
        road.cut()
    leader.kill()  # after the cut: nobody hears its connections end
    await cut_until_another_leads(roads, store, name)
    leader.start()  # on this thread: a server dies with the thread that started it


async def cut_until_another_leads(roads: Sequence[Road], store: Store, name: str) -> None:
    for road in roads:
        road.cut()
    try:
        await store.leader(but=name)
    finally:
        for road in roads:
            road.heal()


@pytest.mark.timeout(150)
async def test_nothing_is_lost_or_doubled_when_nodes_and_servers_die_or_are_cut_off(
    mesh: ClusterMesh, store: Store, net: Hosts
) -> None:
    nemesis = Nemesis(mesh, epoch_s=EPOCH_S)
    troubles = [
        nemesis.kill_the_owner,
        lambda: cut_the_streams_leader(store, nemesis),
        nemesis.cut_the_owner_off,
        lambda: lose_the_leaders_machine(net, store, nemesis),
        nemesis.slow_everything_down,
    ]
    traffic, read = await suffer(mesh, nemesis, troubles, store.url())
    assert len(read.owners) >= 3, "the owner was replaced at least twice"
    assert not traffic.failed, traffic.failed[:3]


def road_of(link: NatsLink, net: Hosts, servers: NatsServers) -> HostRoad:
    """To the server that it is connected with."""
    url = link.client.connected_url
    assert url is not None
    [server] = [one for one in servers.servers if one.place == url.netloc]
    return net.road(net.callers, server.host, server.port)


@pytest.mark.usefixtures("soon")
async def test_a_reader_leaves_a_server_whose_host_is_gone(
    net: Hosts, servers: NatsServers, store: Store
) -> None:
    opened = open_address(store.url(), "q")
    await opened.journal.open()
    reader = opened.journal.reader()
    assert isinstance(reader, NatsReader)
    assert (await reader.head()).last == 0
    road = road_of(reader._link, net, servers)
    road.cut()
    try:
        async with asyncio.timeout(10):
            while not await answers(reader):
                pass
        assert road_of(reader._link, net, servers) != road
    finally:
        road.heal()
        await reader.close()
        await opened.journal.close()
        await opened.checkpoints.close()


async def answers(reader: NatsReader) -> bool:
    try:
        await reader.head()
    except Unavailable:
        return False
    return True


@pytest.mark.usefixtures("soon")
async def test_what_a_host_that_is_gone_has_not_taken_keeps_nobody_from_another(
    net: Hosts, servers: NatsServers, store: Store
) -> None:
    opened = open_address(store.url(), "q")
    await opened.journal.open()
    reader = opened.journal.reader()
    assert isinstance(reader, NatsReader)
    link = await reader._opened()
    road = road_of(link, net, servers)
    road.cut()
    try:
        async with asyncio.timeout(10):
            for _ in range(2):
                with pytest.raises(TimeoutError):
                    await link.publish("anywhere", LARGE, headers={}, timeout_s=0.1)
            while not await answers(reader):
                pass
            await link.close()
    finally:
        road.heal()
        await opened.journal.close()
        await opened.checkpoints.close()
