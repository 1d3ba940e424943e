"""The silver tables: what happened to items, leases, resources and shards."""

from omnirelay.pipeline.silver_attempts import LEASE_ATTEMPTS
from omnirelay.pipeline.silver_backpressure import BACKPRESSURE
from omnirelay.pipeline.silver_epochs import EPOCHS
from omnirelay.pipeline.silver_items import ITEMS
from omnirelay.pipeline.silver_lineage import LINEAGE_EDGES, LINEAGE_NAMES
from omnirelay.pipeline.silver_ownership import RESOURCE_OWNERSHIP

DATASETS = (
    LEASE_ATTEMPTS,
    ITEMS,
    RESOURCE_OWNERSHIP,
    EPOCHS,
    BACKPRESSURE,
    LINEAGE_NAMES,
    LINEAGE_EDGES,
)
