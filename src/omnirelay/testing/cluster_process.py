"""A node as `omnirelay` starts it, in a world that a test can bend:
`python -m omnirelay.testing.cluster_process PREFIX serve ...`.

    PREFIX.roads   JSON, the address of another node to the link that this one reaches it by
    PREFIX.clock   milliseconds that its wall clock is off by; looked at whenever it tells the time
    PREFIX.state   written when it stops: what it holds of each queue that it knows to be the
                   journal's, as JSON: the sequence, and all facts after it

Production code knows nothing of these.
"""

import json
import sys
from pathlib import Path
from types import TracebackType

import omnirelay.node.node
import omnirelay.node.run
from omnirelay.cli.app import main
from omnirelay.lease import image
from omnirelay.model.ports import SystemClock
from omnirelay.node.cluster import Cluster
from omnirelay.node.node import Node
from omnirelay.rpc.transport import Outbound


def roads_of(prefix: Path) -> Path:
    return prefix.with_name(f"{prefix.name}.roads")


def clock_of(prefix: Path) -> Path:
    return prefix.with_name(f"{prefix.name}.clock")


def state_of(prefix: Path) -> Path:
    return prefix.with_name(f"{prefix.name}.state")


def _bend(prefix: Path) -> None:
    roads: dict[str, str] = json.loads(roads_of(prefix).read_text())
    own_wall_ms = SystemClock.wall_ms

    class RoutedCluster(Cluster):
        def _reach(self, url: str) -> Outbound:
            return super()._reach(roads.get(url, url))

    class ToldNode(Node):
        async def __aexit__(
            self,
            kind: type[BaseException] | None,
            error: BaseException | None,
            trace: TracebackType | None,
        ) -> None:
            await super().__aexit__(kind, error, trace)
            state_of(prefix).write_text(json.dumps(_facts(self)))

    def wall_ms(clock: SystemClock) -> int:
        try:
            off_ms = int(clock_of(prefix).read_text())
        except FileNotFoundError:
            off_ms = 0
        return own_wall_ms(clock) + off_ms

    SystemClock.wall_ms = wall_ms  # type: ignore[assignment, method-assign]
    omnirelay.node.node.Cluster = RoutedCluster  # type: ignore[attr-defined]
    omnirelay.node.run.Node = ToldNode  # type: ignore[attr-defined]


def _facts(node: Node) -> dict[str, tuple[int, str]]:
    """Of an owner, and of whoever follows; one whose last append failed knows nothing."""
    shards = {name: engine.shard for name, engine in node._engines.items()}
    return {
        name: (shard.state.sequence, image.facts(shard.state).decode())
        for name, shard in shards.items()
        if shard.is_served_here or shard.owner_url
    }


if __name__ == "__main__":
    _bend(Path(sys.argv.pop(1)))
    main()
