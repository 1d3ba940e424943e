"""An embedded queue in memory whose time is the test's own."""

from omnirelay.lease.options import QueueOptions
from omnirelay.mesh.shard_options import ShardOptions
from omnirelay.model.ports import Clock, RandomIds
from omnirelay.sdk.client import Relay
from omnirelay.sdk.engine import Engine
from omnirelay.sdk.link import BlockingLink
from omnirelay.sdk.sync import SyncRelay
from omnirelay.stores.registry import open_address

NAMESPACE = "resourcelease"


def embedded(clock: Clock, options: QueueOptions | None = None) -> SyncRelay:
    """Close it, or use it with `with`. Delays, leases and heartbeats go by `clock`: what falls due
    when it is moved is seen by the next call."""
    shard = ShardOptions(node="embedded", queue=options or QueueOptions())
    engine = Engine(open_address("memory:", NAMESPACE), shard, clock, RandomIds())
    engine.start()
    return SyncRelay(Relay(BlockingLink(engine), clock=clock))
