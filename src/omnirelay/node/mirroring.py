"""The mirrors of one queue, each on a thread of its own: one that hangs holds up nothing else."""

import logging
from typing import TYPE_CHECKING

import msgspec

from omnirelay.journal.follower import FollowerStatus
from omnirelay.journal.mirror import Mirror, MirrorOptions, OnRival, Place
from omnirelay.model.errors import InvalidOption, OmniRelayError
from omnirelay.model.ports import Clock
from omnirelay.node.settings import NamespaceSettings, NodeSettings
from omnirelay.sdk.engine import Engine
from omnirelay.sdk.threads import LoopThread
from omnirelay.stores.address import masked
from omnirelay.stores.registry import open_mirror

if TYPE_CHECKING:
    from concurrent.futures import Future

log = logging.getLogger(__name__)

STATUS_S = 2.0
"""How long whoever asks for a status waits for one mirror."""
LAST_S = 2.0
"""How long a node that stops lets its mirrors catch up."""


def mirror_urls(settings: NodeSettings, own: NamespaceSettings) -> tuple[str, ...]:
    return own.mirrors or settings.mirrors


class Mirrors:
    """Nothing runs before `start`."""

    def __init__(
        self,
        engine: Engine,
        settings: NodeSettings,
        own: NamespaceSettings,
        clock: Clock,
        on_rival: OnRival,
    ) -> None:
        """`on_rival` is called on a mirror's own thread. Raises InvalidOption for an address that
        cannot be a mirror's."""
        shard = engine.shard
        self._running: list[_Running] = []
        options = MirrorOptions(
            hold_ms=round(settings.mirror_hold_s * 1000), retain_ms=own.keep.retain_ms
        )
        for url in mirror_urls(settings, own):
            if url.startswith("memory:"):
                raise InvalidOption("mirrors: memory: would be lost with this process")
            opened = open_mirror(url, shard.name)
            mirror = Mirror(
                masked(url),
                engine.source,
                engine.checkpoints,
                Place(opened.journal, opened.checkpoints),
                bell=shard.bell,
                clock=clock,
                is_ours=lambda: shard.is_served_here,
                on_rival=on_rival,
                options=options,
            )
            self._running.append(_Running(mirror))

    def start(self) -> None:
        for one in self._running:
            one.start()

    @property
    def names(self) -> set[str]:
        return {one.mirror.name for one in self._running}

    def status(self) -> list[FollowerStatus]:
        """Blocks for a moment at most; a mirror that does not answer says so."""
        return [one.status() for one in self._running]

    def caught_up(self) -> bool:
        """Whether every mirror holds all that was committed, within a moment. Blocks."""
        waits = [one.finish() for one in self._running]
        return all(wait is not None and wait.result(2 * LAST_S) for wait in waits)

    def close(self) -> None:
        """What is committed is given a moment to arrive."""
        waits = [one.finish() for one in self._running]
        for one, wait in zip(self._running, waits, strict=True):
            one.close(wait)


class _Running:
    def __init__(self, mirror: Mirror) -> None:
        self.mirror = mirror
        self._last = FollowerStatus(mirror.name, mirror.shard, 0, 0, 0, 0, "not started yet")
        self._thread: LoopThread | None = None
        self._running: Future[None] | None = None

    def start(self) -> None:
        self._thread = LoopThread(f"omnirelay-{self.mirror.name}"[:60])
        self._running = self._thread.start(self.mirror.run())

    def status(self) -> FollowerStatus:
        if self._thread is None:
            return self._last
        asking = self._thread.start(self.mirror.status())
        try:
            self._last = asking.result(STATUS_S)
        except (OmniRelayError, TimeoutError) as error:
            asking.cancel()
            why = str(error) or f"did not answer within {STATUS_S:g} s"
            self._last = msgspec.structs.replace(self._last, last_error=why)
        return self._last

    def finish(self) -> "Future[bool] | None":
        if self._thread is None or self._running is None or self._running.done():
            return None
        return self._thread.start(self.mirror.caught_up(LAST_S))

    def close(self, wait: "Future[bool] | None") -> None:
        if self._thread is None:
            return
        if wait is not None:
            try:
                is_level = wait.result(2 * LAST_S)
            except (OmniRelayError, TimeoutError):
                is_level = False
            if not is_level and self.mirror.stopped is None:
                log.warning("%s does not hold all that was committed", self.mirror.name)
        self._thread.stop()
