"""The pipeline as a stream without Spark's streaming: runs, one after the other.

Over Spark Connect a micro-batch would be handed to a Python of the server's, which has neither our
lease nor our failures. The journals tell how far they are without Spark, and the tables' positions
say what is new: so this process looks, and takes the steps of a run whenever there is something.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from omnirelay.model import limits
from omnirelay.model.ports import stopwatch
from omnirelay.pipeline.datasets import LEASE_EVENTS, Positions
from omnirelay.pipeline.run import Pipeline, RunReport
from omnirelay.pipeline.source_options import ROWS_PER_BATCH
from omnirelay.pipeline.stream import Stream, StreamOptions


@dataclass
class PolledStream(Stream):
    """It needs no checkpoint: what a crash left undone is new to the tables."""

    _has_heard: bool = False
    """Its journals have answered. The tables cannot tell: others may have filled them."""
    _asked_at: float = field(default_factory=stopwatch)
    """When Spark was last asked something."""

    def _has_begun(self) -> bool:
        return self._has_heard

    def _check(self) -> None:
        super()._check()
        if stopwatch() - self._asked_at >= limits.CONNECT_SILENCE_S:
            self._asked_at = stopwatch()
            _ = self.pipeline.session.version  # asks the server, which keeps our session for it

    def _positions(self) -> Positions:
        return self.pipeline.tables.snapshot(LEASE_EVENTS).positions

    def _follow(self) -> None:
        heads = self.pipeline.intake.journals.heads()
        self._has_heard = True
        goal = heads if self.options.is_once else None
        is_wanted = True  # if only to bring up tables that a crash left behind the events
        while not self._stopping.is_set():
            begun = stopwatch()
            self._check()
            if is_wanted:
                self._run()
            after = self._positions()
            new = self.pipeline.intake.journals.new(after)[1]
            if goal is not None and not any(after.get(one, 0) < goal.get(one, 0) for one in new):
                return
            is_wanted = bool(new)
            least_s = 0.0 if is_wanted else limits.STREAM_IDLE_PAUSE_S
            left_s = self.options.interval_s - (stopwatch() - begun)
            self._stopping.wait(max(least_s, left_s))

    def _run(self) -> None:
        most = self.options.rows_max or ROWS_PER_BATCH
        self.last = self.pipeline.run(lambda intake: intake.take(most))
        self._asked_at = stopwatch()
        self.on_report(self.last)


def open_stream(
    pipeline: Pipeline,
    options: StreamOptions,
    *,
    on_report: Callable[[RunReport], None],
    say: Callable[[str], None],
    is_polled: bool,
) -> Stream:
    kind = PolledStream if is_polled else Stream
    return kind(pipeline, options, on_report, say)
