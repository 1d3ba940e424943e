"""How one shard is run, whatever its queue."""

import msgspec

from omnirelay.lease.options import QueueOptions
from omnirelay.lease.records import FORMAT
from omnirelay.mesh.keeper import KeepOptions


class ShardOptions(msgspec.Struct, frozen=True, kw_only=True):
    node: str
    queue: QueueOptions = QueueOptions()
    keep: KeepOptions = KeepOptions()
    require: str | None = None
    """The least the journal must survive: process_kill, power_loss or node_loss."""
    ttl_ms: int = 0
    """How long this node may be silent as owner before another may try; 0: it has no rivals."""
    stands_by: bool = False
    """It follows another region, so it may say what it knows although it is not the owner."""
    url: str = ""
    """Where this node takes calls that others pass on."""
    format: int = FORMAT
    """The newest record format that this node reads, and may begin."""
    retry_min_s: float = 0.05
    retry_max_s: float = 2.0

    @property
    def tells(self) -> bool:
        """Whether it answers reads while it is not the owner."""
        return self.stands_by or not self.ttl_ms
