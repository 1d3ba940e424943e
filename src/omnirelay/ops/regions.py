"""Pages about regions: whether this node serves or stands by, and what changes that."""

from typing import Protocol

import msgspec

from omnirelay.identity.policy import PROMOTE
from omnirelay.identity.settings import Identity
from omnirelay.model.errors import InvalidArgument
from omnirelay.model.ports import Clock
from omnirelay.ops.door import Door, body_of
from omnirelay.transports.http_pages import Page, PageRequest

SILENCE_MS = 30_000
"""How long the other region may have been silent before its loss must be accepted by name."""


class PromoteRequest(
    msgspec.Struct, frozen=True, rename="camel", kw_only=True, forbid_unknown_fields=True
):
    accept_loss_events: int = 0
    accept_loss_ms: int | None = None
    """How long the other region may have been silent; None: as long as usual."""
    last_sequences: dict[str, int] = {}
    """By namespace, where the region that stood down has ended."""


class StandDownRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    why: str = "an operator asked for it"


class ShardPlace(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    shard: str
    epoch: int
    last_sequence: int
    leader: str
    primary_sequence: int | None = None
    """How far the other region is, as it last said."""
    behind_events: int | None = None
    behind_ms: int | None = None
    silent_ms: int | None = None
    """How long ago it said so."""


class RegionState(msgspec.Struct, frozen=True, rename="camel"):
    node_id: str
    role: str
    """`serving` or `standby`."""
    since_ms: int
    why: str
    shards: list[ShardPlace]


class StoodDown(msgspec.Struct, frozen=True, rename="camel"):
    node_id: str
    last_sequences: dict[str, int]
    mirrors_level: bool
    """Whether all of it has arrived at every mirror."""


class RegionView(Protocol):
    async def show(self) -> RegionState: ...

    async def promote(self, wanted: PromoteRequest) -> RegionState: ...

    async def stand_down(self, why: str) -> StoodDown: ...


class Regions:
    def __init__(self, region: RegionView) -> None:
        self._region = region

    async def show(self, request: PageRequest) -> RegionState:
        return await self._region.show()

    async def promote(self, request: PageRequest) -> RegionState:
        wanted: PromoteRequest = body_of(request, PromoteRequest)
        if wanted.accept_loss_events < 0 or (wanted.accept_loss_ms or 0) < 0:
            raise InvalidArgument("the accepted loss is at least 0")
        return await self._region.promote(wanted)

    async def stand_down(self, request: PageRequest) -> StoodDown:
        wanted: StandDownRequest = body_of(request, StandDownRequest)
        return await self._region.stand_down(wanted.why[:200])


def region_pages(region: RegionView, identity: Identity, clock: Clock) -> dict[str, Page]:
    door, regions = Door(identity, clock), Regions(region)
    prefix = "/omnirelay/control/region"
    return {
        prefix: door.reads(regions.show),
        f"{prefix}/promote": door.changes(regions.promote, permission=PROMOTE),
        f"{prefix}/stand-down": door.changes(regions.stand_down, permission=PROMOTE),
    }
