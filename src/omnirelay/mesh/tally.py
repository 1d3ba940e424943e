"""What a shard has committed since it opened, counted as it happens."""

from collections import Counter, deque
from typing import TYPE_CHECKING

from omnirelay.lease.records import DEAD_LETTERED, Expired, Failed, Followed, Record, Refused
from omnirelay.mesh.turn import Turn
from omnirelay.model import limits

if TYPE_CHECKING:
    from collections.abc import Callable


class Tally:
    """Written by whoever takes the turn, read by anybody: single counts that need not agree."""

    def __init__(self) -> None:
        self.kinds: Counter[type[Record]] = Counter()
        self.dead_lettered = 0
        self.commits = 0
        self.append_s = 0.0
        """How long the store took for the last commit."""
        self.on_backpressure: Callable[[bool, int], None] | None = None
        """Told, on the thread of the turn, that backpressure began or ended, and at which depth."""
        self._was_paused = False
        self.denied: deque[Refused] = deque(maxlen=limits.REFUSALS_MAX)
        """Calls that were refused at the node's door; the owner writes them down. From any thread,
        and if they are many the oldest are forgotten."""
        self.followed: tuple[Followed, ...] = ()
        """How far the readers of this journal are, furthest behind first; the owner writes it down
        once. Whoever looks again replaces it whole, from any thread: a look that is lost in
        between does no harm."""

    def note(self, turn: Turn) -> None:
        self.commits += 1
        for kind, count in turn.kinds.items():  # `update` takes ten times as long for one or two
            self.kinds[kind] += count
        if Failed in turn.kinds or Expired in turn.kinds:
            for record in turn.records:
                if isinstance(record, Failed | Expired) and record.disposition == DEAD_LETTERED:
                    self.dead_lettered += 1
        state = turn.state
        if state.paused != self._was_paused:
            self._was_paused = state.paused
            if self.on_backpressure is not None:
                self.on_backpressure(state.paused, len(state.pending))
