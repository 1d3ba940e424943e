"""A mesh of the program before this record format, upgraded node by node while it is used.

`tests/fixtures/program-format2.tar.xz` is that program itself: its package without `pipeline` and
`testing`, as it was in the last commit whose `FORMAT` was 2. The next format brings another.
"""

import asyncio
import tarfile
from collections.abc import Awaitable, Callable
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path

import pytest

from omnirelay.cli.free_ports import LOOPBACK
from omnirelay.lease.records import FORMAT, EpochStarted
from omnirelay.stores.registry import open_address
from omnirelay.testing.cluster_nodes import (
    NAMESPACE,
    START_S,
    ClusterMesh,
    ClusterNode,
    cluster_mesh,
)
from omnirelay.testing.cluster_traffic import Traffic
from omnirelay.testing.cluster_verdict import Read, breaches, read_journal
from omnirelay.testing.servers_postgres import PostgresServer
from tests.servers.postgres_storage import fresh_schema

ARCHIVE = Path(__file__).parents[1] / "fixtures" / "program-format2.tar.xz"
OLD = 2
EPOCH_S = 1.0
SNAPSHOTS = f"[namespaces.{NAMESPACE}.keep]\nsnapshot_every = 100\n"


class Programs:
    """Which one the next process is of."""

    def __init__(self, folder: Path, environment: pytest.MonkeyPatch) -> None:
        self._folder = folder / "program"
        self._environment = environment
        with tarfile.open(ARCHIVE) as archive:
            archive.extractall(self._folder, filter="data")

    def old(self) -> None:
        self._environment.setenv("PYTHONPATH", str(self._folder))

    def new(self) -> None:
        self._environment.delenv("PYTHONPATH")


async def _nothing() -> None:
    return None


async def _replace(
    node: ClusterNode, mesh: ClusterMesh, meanwhile: Callable[[], Awaitable[None]] = _nothing
) -> None:
    """Returns when the others have heard of the new one, and so know what it reads."""
    others = [other for other in mesh.nodes if other is not node]
    line = f"node {node.name} answers at"
    known = [other.log.count(line) for other in others]
    assert await asyncio.to_thread(node.end) == 0, node.log[-2000:]
    await meanwhile()
    node.launch()
    await asyncio.to_thread(node.await_ready)
    async with asyncio.timeout(10):
        for other, had in zip(others, known, strict=True):
            await _says_again(other, line, had)


async def _says_again(node: ClusterNode, line: str, had: int) -> None:
    while node.log.count(line) <= had:  # noqa: ASYNC110 - a log tells only who looks
        await asyncio.sleep(0.02)


async def _snapshot_taken(url: str, mesh: ClusterMesh) -> None:
    """By who owns the queue now, so that whoever starts next begins with what that one wrote."""
    epoch = await _newest(mesh)
    opened = open_address(url, NAMESPACE)
    await opened.journal.open()
    async with asyncio.timeout(10):
        ref = await opened.journal.snapshot()
        while ref is None or ref.epoch < epoch:
            await asyncio.sleep(0.02)
            ref = await opened.journal.snapshot()
    await opened.journal.close()
    await opened.checkpoints.close()


async def _hand_over(owner: ClusterNode) -> None:
    """As an operator asks for it: it goes on running, and owns nothing any more."""
    drained = await asyncio.to_thread(_answer, owner, "POST", "/omnirelay/control/upgrade/drain")
    assert drained.startswith("200"), drained


async def _refused(node: ClusterNode) -> str:
    """What it said last, when it comes back and does not stay."""
    assert await asyncio.to_thread(node.end) == 0, node.log[-2000:]
    node.launch()
    async with asyncio.timeout(START_S):
        while node.is_running:  # noqa: ASYNC110 - a process that ends tells only who looks
            await asyncio.sleep(0.02)
    return node.log.splitlines()[-1]


def _answer(node: ClusterNode, method: str, path: str) -> str:
    with closing(HTTPConnection(LOOPBACK, node.http, timeout=5)) as connection:
        connection.request(method, path, headers={"content-type": "application/json"})
        answer = connection.getresponse()
        return f"{answer.status} {answer.read().decode()}"


def _formats(read: Read) -> dict[int, int]:
    """The one that each epoch names."""
    begun = [one.records[0] for one in read.envelopes if isinstance(one.records[0], EpochStarted)]
    return {record.epoch: record.rules.format for record in begun}


async def _newest(mesh: ClusterMesh) -> int:
    return max(int(row["epoch"]) for row in await asyncio.to_thread(mesh.rows))


@pytest.mark.timeout(60)
async def test_a_mesh_is_upgraded_under_load_and_writes_the_new_format_when_all_read_it(
    postgres: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, programs = postgres.url(fresh_schema()), Programs(tmp_path, monkeypatch)
    (tmp_path / "omnirelay.toml").write_text(SNAPSHOTS)
    flags = ("--grace-s", "5", "--config", str(tmp_path / "omnirelay.toml"))
    with cluster_mesh(tmp_path, lambda _: url, 3, *flags, epoch_s=EPOCH_S) as mesh:
        for node in mesh.nodes:
            node.be_plain()
        programs.old()
        mesh.start()
        traffic, (first, second, last) = Traffic(mesh.urls), mesh.nodes
        async with traffic.running():
            await traffic.goes_on()
            programs.new()
            await _replace(first, mesh)
            await _replace(second, mesh)
            programs.old()
            await _replace(last, mesh, lambda: _snapshot_taken(url, mesh))
            programs.new()
            await traffic.goes_on()
            mixed = await _newest(mesh)
            await _replace(last, mesh)
            await traffic.goes_on()
            upgraded, owner = await _newest(mesh), await mesh.owner()
            await _hand_over(owner)
            await traffic.goes_on()
            programs.old()
            refused = await _refused(owner)
            await traffic.goes_on()
            programs.new()
            owner.launch()
            await asyncio.to_thread(owner.await_ready)
    read = await read_journal(url, NAMESPACE)
    traffic.seen.clear()  # the old program tells its readers only of fields that it knows
    found = list(breaches(read, traffic, {}))
    assert not found, "\n".join(found[:10])
    assert not traffic.failed, traffic.failed[:3]
    formats = _formats(read)
    assert {formats[epoch] for epoch in formats if epoch <= mixed} == {OLD}
    assert {formats[epoch] for epoch in formats if epoch > upgraded} == {FORMAT}
    assert f"record format {FORMAT} and this program reads up to {OLD}: upgrade" in refused
