"""One run: a mesh under traffic and troubles, and the verdict of its journal."""

from collections.abc import Awaitable, Callable, Sequence

from omnirelay.testing import figures
from omnirelay.testing.cluster_nemesis import Nemesis
from omnirelay.testing.cluster_nodes import NAMESPACE, ClusterMesh
from omnirelay.testing.cluster_traffic import Traffic
from omnirelay.testing.cluster_verdict import Read, breaches, lost, read_journal

Trouble = Callable[[], Awaitable[None]]


async def suffer(
    mesh: ClusterMesh, nemesis: Nemesis, troubles: Sequence[Trouble], journal: str
) -> tuple[Traffic, Read]:
    """Traffic from before the first trouble until after the last; then the nodes stop and the
    journal has to answer for everything."""
    traffic = Traffic(mesh.urls)
    async with traffic.running():
        await traffic.goes_on()
        for trouble in troubles:
            await trouble()
            await traffic.goes_on()
    for node in mesh.nodes:
        assert node.end() == 0, node.log[-3000:]
    read = await read_journal(journal, NAMESPACE)
    found = list(breaches(read, traffic))
    failover_ms = failovers_ms(nemesis, traffic, read)
    figures.record(
        "cluster",
        actions=len(nemesis.actions),
        operations=len(traffic.history),
        unknown=sum(op.ok is None for op in traffic.history),
        items_lost=len(lost(read, traffic)),
        stale_accepted=sum(line.startswith(("R3", "R4")) for line in found),
        failover_ms=failover_ms,
    )
    assert not found, "\n".join(found[:10])
    assert traffic.accepted
    return traffic, read


def failovers_ms(nemesis: Nemesis, traffic: Traffic, read: Read) -> list[float]:
    """From each kill of an owner to the first grant that a worker had of the next one."""
    found = []
    for kill in nemesis.kills:
        fence = read.first_grant_after(kill.epoch)
        assert fence is not None
        granted = traffic.granted_by(fence)
        assert granted is not None
        found.append(round((granted - kill.at) * 1000, 1))
    return found
