"""What an operator may change while the node runs: log level, tracing, draining."""

import logging
from typing import Final

import msgspec

from omnirelay.model.errors import InvalidArgument
from omnirelay.ops.door import body_of
from omnirelay.ops.tracing import Sampling, SamplingState
from omnirelay.ops.view import NodeView
from omnirelay.transports.http_pages import PageRequest

log = logging.getLogger(__name__)

LEVELS: Final = ("debug", "info", "warning", "error", "critical")


class LogLevel(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    level: str


class UpgradeState(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """`safeToStop`: nobody here holds a lease that a restart would make them renew elsewhere."""

    node_id: str
    state: str
    """`active` or `draining`."""
    active_lease_count: int
    pending_count: int
    safe_to_stop: bool
    trouble: str | None = None


class Switches:
    def __init__(self, node: NodeView, sampling: Sampling) -> None:
        self._node = node
        self._sampling = sampling
        self._logger = logging.getLogger("omnirelay")

    async def show_level(self, request: PageRequest) -> LogLevel:
        name = logging.getLevelName(self._logger.getEffectiveLevel())
        return LogLevel(str(name).lower())

    async def change_level(self, request: PageRequest) -> LogLevel:
        wanted: LogLevel = body_of(request, LogLevel)
        level = wanted.level.strip().lower()
        if level not in LEVELS:
            raise InvalidArgument(f"level is {wanted.level[:40]!r}, must be {', '.join(LEVELS)}")
        self._logger.setLevel(level.upper())
        log.warning("the log level is %s now", level)
        return await self.show_level(request)

    async def show_tracing(self, request: PageRequest) -> SamplingState:
        return SamplingState(self._sampling.probability)

    async def change_tracing(self, request: PageRequest) -> SamplingState:
        wanted: SamplingState = body_of(request, SamplingState)
        self._sampling.change(wanted.sampling_probability)
        log.warning("the tracing probability is %s now", self._sampling.probability)
        return await self.show_tracing(request)

    async def show_upgrade(self, request: PageRequest) -> UpgradeState:
        statuses = [shard.status() for shard in self._node.shards.values()]
        active = sum(status.active_lease_count for status in statuses)
        is_draining = self._node.is_draining
        return UpgradeState(
            node_id=self._node.node_id,
            state="draining" if is_draining else "active",
            active_lease_count=active,
            pending_count=sum(status.pending_count for status in statuses),
            safe_to_stop=is_draining and not active,
            trouble=self._node.trouble,
        )

    async def drain(self, request: PageRequest) -> UpgradeState:
        await self._node.hand_over()
        self._node.drain()
        log.warning("the node drains: an operator asked for it")
        return await self.show_upgrade(request)

    async def resume(self, request: PageRequest) -> UpgradeState:
        self._node.resume()
        log.warning("the node takes work again: an operator asked for it")
        return await self.show_upgrade(request)
