"""A mesh of real nodes over one PostgreSQL, which each of them reaches by a link of its own."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from omnirelay.cli.free_ports import LOOPBACK
from omnirelay.testing.cluster_nodes import ClusterMesh, cluster_mesh
from omnirelay.testing.servers_postgres import USER, PostgresServer


@contextmanager
def postgres_mesh(
    server: PostgresServer, schema: str, folder: Path, *, nodes: int, epoch_s: float
) -> Iterator[ClusterMesh]:
    def journal(ports: Sequence[int]) -> str:
        return f"postgres://{USER}@{LOOPBACK}:{ports[0]}/postgres?schema={schema}"

    with cluster_mesh(folder, journal, nodes, epoch_s=epoch_s, store_ports=[server.port]) as mesh:
        mesh.start()
        yield mesh
