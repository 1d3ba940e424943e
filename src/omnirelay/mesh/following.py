"""A journal that somebody else writes, followed closely: the state stays hot, so that whoever takes
over needs only the tail."""

from collections.abc import Callable

from omnirelay.journal.backend import Head, JournalBackend
from omnirelay.journal.format import Chain
from omnirelay.lease.records import FORMAT
from omnirelay.lease.state import QueueState
from omnirelay.mesh.recovery import recover, replay
from omnirelay.model import limits
from omnirelay.model.errors import Corrupt, TooNew
from omnirelay.model.ports import Clock

_LOOK_EVERY_MS = 1_000


class Following:
    def __init__(
        self,
        backend: JournalBackend,
        clock: Clock,
        state: QueueState,
        chain: Chain,
        *,
        snapshot_sequence: int,
    ) -> None:
        self.state = state
        self.snapshot_sequence = snapshot_sequence
        self._backend = backend
        self._clock = clock
        self._chain = chain
        self._heard_ms = clock.monotonic_ms()

    @classmethod
    async def begin(
        cls, backend: JournalBackend, clock: Clock, format_: int = FORMAT
    ) -> "Following":
        """From the newest snapshot and the tail. Raises Corrupt, and TooNew for what only a newer
        program can read."""
        recovered = await recover(backend)
        following = cls(
            backend,
            clock,
            recovered.state,
            recovered.chain,
            snapshot_sequence=recovered.snapshot_sequence,
        )
        following.check(format_)
        return following

    def check(self, format_: int) -> None:
        """Raises TooNew: what comes next might be misread."""
        if self.state.rules.format > format_:
            raise TooNew(self._backend.shard, self.state.rules.format, format_)

    @property
    def head(self) -> Head:
        """Of what was folded, not of a later look: what a rival appended since is unknown here,
        and the first append must fail for it."""
        return Head(self._chain.last, self._chain.epoch, self._chain.link or "")

    @property
    def silence_ms(self) -> int:
        """How long ago the journal was last seen to grow, on this node's own clock."""
        return self._clock.monotonic_ms() - self._heard_ms

    async def catch_up(
        self, format_: int = FORMAT, on_look: Callable[[bool], None] = lambda is_close: None
    ) -> None:
        """Fold what is there by now. `on_look` hears now and then, if that is much or the owner
        goes on writing, whether this is close behind the end. Raises Corrupt or TooNew."""
        folded, looked_ms = 0, self._clock.monotonic_ms()
        while True:
            try:
                bodies = await self._backend.read(self._chain.last, limits.READ_ENVELOPES_MAX)
            except Corrupt:
                on_look(False)
                if not await self._start_over():
                    raise
                self.check(format_)
                continue
            if not bodies:
                return
            for envelope in self._chain.accept_all(bodies):
                replay(self.state, envelope)
                self.check(format_)
            self._heard_ms = self._clock.monotonic_ms()
            folded += len(bodies)
            is_long = self._heard_ms - looked_ms >= _LOOK_EVERY_MS
            if folded >= limits.READ_ENVELOPES_MAX or is_long:
                folded, looked_ms = 0, self._heard_ms
                behind = (await self._backend.head()).last - self._chain.last
                on_look(behind <= limits.CLOSE_BEHIND_EVENTS)

    async def _start_over(self) -> bool:
        """A node that was away for long may miss what the owner has pruned since. That is no
        damage if a newer snapshot covers it. False: none does."""
        ref = await self._backend.snapshot()
        if ref is None or ref.sequence <= self._chain.last:
            return False
        recovered = await recover(self._backend)
        self.state, self._chain = recovered.state, recovered.chain
        self.snapshot_sequence = recovered.snapshot_sequence
        self._heard_ms = self._clock.monotonic_ms()
        return True
