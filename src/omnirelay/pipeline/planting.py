"""Damage to plant in a synthetic history, so that the audit can show that it would find it.

Each kind is one thing that a broken store, a second writer or a careless program could do. All
else about the history is put right again (links, depths), so that a finding is about this.
"""

from omnirelay.pipeline.planting_bed import Bed, Flaw, Planted
from omnirelay.pipeline.planting_items import ITEM_FLAWS
from omnirelay.pipeline.planting_order import ORDER_FLAWS
from omnirelay.pipeline.synth_chain import Kept
from omnirelay.pipeline.synth_traffic import Share

KINDS: dict[str, Flaw] = {**ORDER_FLAWS, **ITEM_FLAWS}


def plant(kind: str, share: Share) -> tuple[list[Kept], Planted]:
    """The share's history with this damage in it. Raises InvalidOption if there is no place."""
    flaw = KINDS[kind]
    bed = Bed(flaw.lay(share))
    sequence = flaw.make(bed)
    planted = Planted(kind, share.shard, sequence, flaw.check, flaw.also, bed.acknowledged)
    return bed.kept, planted
