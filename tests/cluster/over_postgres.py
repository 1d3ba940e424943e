"""A mesh of real nodes over one PostgreSQL, which each of them reaches by a road of its own."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from omnirelay.testing.cluster_net import Net
from omnirelay.testing.cluster_nodes import ClusterMesh, cluster_mesh
from omnirelay.testing.servers_postgres import PostgresServer


@contextmanager
def postgres_mesh(
    server: PostgresServer,
    schema: str,
    folder: Path,
    *,
    nodes: int,
    epoch_s: float,
    net: Net | None = None,
) -> Iterator[ClusterMesh]:
    def journal(places: Sequence[str]) -> str:
        return server.url(schema, place=places[0])

    with cluster_mesh(folder, journal, nodes, epoch_s=epoch_s, net=net, store=[server]) as mesh:
        mesh.start()
        yield mesh
