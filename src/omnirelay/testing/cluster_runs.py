"""One run: a mesh under traffic and troubles, and the verdict of its journal."""

import asyncio
from collections.abc import Mapping, Sequence

from omnirelay.testing import figures
from omnirelay.testing.cluster_nemesis import Nemesis, Trouble
from omnirelay.testing.cluster_nodes import NAMESPACE, ClusterMesh
from omnirelay.testing.cluster_traffic import Traffic
from omnirelay.testing.cluster_verdict import Held, Read, breaches, lost, read_journal


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
    held = await stopped(mesh)
    read = await read_journal(journal, NAMESPACE)
    found = list(breaches(read, traffic, held))
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
    assert_not_empty(traffic, held)
    return traffic, read


async def stopped(mesh: ClusterMesh) -> dict[str, Held]:
    """All nodes end as they should; by node what each of them held then."""
    for node in mesh.nodes:
        assert await asyncio.to_thread(node.end) == 0, node.log[-3000:]
    return held_of(mesh, NAMESPACE)


def held_of(mesh: ClusterMesh, namespace: str) -> dict[str, Held]:
    told = {node.name: node.told_state() for node in mesh.nodes}
    return {name: state[namespace] for name, state in told.items() if namespace in state}


def assert_not_empty(traffic: Traffic, held: Mapping[str, Held]) -> None:
    """A verdict is worth something only about what has happened."""
    assert traffic.accepted
    assert traffic.stale["complete"], "no late completion was tried"
    assert traffic.stale["heartbeat"], "no late heartbeat was tried"
    assert traffic.repeated["lease"], "no lease was asked for twice"
    assert traffic.repeated["enqueue"], "nothing was enqueued twice"
    assert any(op.kind == "heartbeat" and op.ok for op in traffic.history)
    assert len(held) == len(traffic.seen), "every node knew what it held"


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
