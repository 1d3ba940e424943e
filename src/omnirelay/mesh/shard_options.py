"""How one shard is run, whatever its queue."""

import msgspec

from omnirelay.lease.options import QueueOptions
from omnirelay.mesh.keeper import KeepOptions


class ShardOptions(msgspec.Struct, frozen=True, kw_only=True):
    node: str
    queue: QueueOptions = QueueOptions()
    keep: KeepOptions = KeepOptions()
    require: str | None = None
    """The least the journal must survive: process_kill, power_loss or node_loss."""
    retry_min_s: float = 0.05
    retry_max_s: float = 2.0
