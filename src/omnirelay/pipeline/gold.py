"""The gold tables: how things went, for those who run them."""

from omnirelay.pipeline.gold_peers import PEER_HEALTH
from omnirelay.pipeline.gold_principals import PRINCIPAL_ACTIVITY
from omnirelay.pipeline.gold_resources import HOT_RESOURCES
from omnirelay.pipeline.gold_windows import SLO_BY_WINDOW

DATASETS = (SLO_BY_WINDOW, PEER_HEALTH, PRINCIPAL_ACTIVITY, HOT_RESOURCES)
