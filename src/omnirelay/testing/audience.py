"""A follower of the simulated journal whose sink fails and which is itself restarted."""

import asyncio
from collections.abc import Sequence

from omnirelay.journal.bell import Bell
from omnirelay.journal.checkpoint import CheckpointingSink
from omnirelay.journal.events import Event
from omnirelay.journal.follower import Follower
from omnirelay.testing.disk import SimJournal
from omnirelay.testing.nodes import SHARD, Site


class Audience:
    """Keeps every event it was given, and complains of any that came out of turn."""

    def __init__(self, site: Site) -> None:
        self.seen: list[Event] = []
        self.complaints: list[str] = []
        self.is_calm = False
        self._site = site
        self._may_repeat = False

    async def run(self) -> None:
        while True:
            life = self._site.loop.create_task(self._follow())
            try:
                if "follower_restart" in self._site.plan.faults and not self.is_calm:
                    await asyncio.wait([life], timeout=self._site.chance.uniform(0.1, 2.0))
                else:
                    await life
            finally:
                life.cancel()
            await asyncio.wait([life])
            self._site.counts["follower_restart"] += 1

    async def _follow(self) -> None:
        site = self._site
        sink = await CheckpointingSink.open(
            "audience", SHARD, store=site.checkpoints, apply=self._apply, clock=site.clock
        )
        # A batch that was applied when the last life ended may not have been noted as applied.
        self._may_repeat = True
        node = site.node
        # Most hear no bell, as in another process, and look by themselves now and then.
        is_near = node is not None and site.chance.random() < 0.3
        bell = node.shard.bell if node is not None and is_near else Bell()
        reader = SimJournal(SHARD, site.disk).reader()
        await Follower(reader, sink, bell=bell, clock=site.clock).run()

    async def _apply(self, events: Sequence[Event]) -> None:
        site = self._site
        if not self.is_calm and "sink_fails" in site.plan.faults and site.chance.random() < 0.2:
            site.counts["sink_fails"] += 1
            raise OSError("the sink fails")
        for event in events:
            number = event.sequence_number
            if number == len(self.seen) + 1:
                self.seen.append(event)
            elif number > len(self.seen):
                self.complaints.append(f"J2: the sink got {number} after {len(self.seen)}")
            elif not self._may_repeat:
                self.complaints.append(f"J2: the sink got {number} again")
        self._may_repeat = False
