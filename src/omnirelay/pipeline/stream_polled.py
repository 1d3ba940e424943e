"""The pipeline as a stream without Spark's streaming: runs, one after the other.

Over Spark Connect a micro-batch would be handed to a Python of the server's, which has neither our
lease nor our failures. The journals tell how far they are without Spark, and the tables' positions
say what is new: so this process looks, and takes the steps of a run whenever there is something.
"""

from collections.abc import Callable
from dataclasses import dataclass

from omnirelay.model.ports import stopwatch
from omnirelay.pipeline.datasets import LEASE_EVENTS, Positions
from omnirelay.pipeline.delta_rows import moving
from omnirelay.pipeline.run import Pipeline, RunReport
from omnirelay.pipeline.stream import Stream, StreamOptions


@dataclass
class PolledStream(Stream):
    """It needs no checkpoint: what a crash left undone is new to the tables."""

    def _has_begun(self) -> bool:
        return bool(self._positions())

    def _positions(self) -> Positions:
        return self.pipeline.tables.snapshot(LEASE_EVENTS).positions

    def _follow(self) -> None:
        goal = self.pipeline.intake.journals.heads() if self.options.is_once else None
        is_wanted = True  # if only to bring up tables that a crash left behind the events
        while not self._stopping.is_set():
            begun = stopwatch()
            self.pipeline.hold.check()
            if is_wanted:
                self.last = self.pipeline.run(lambda intake: intake.take(self.options.rows_max))
                self.on_report(self.last)
            after = self._positions()
            is_wanted = bool(self.pipeline.intake.journals.new(after)[1])
            if goal is not None and not (is_wanted and moving(after, goal)):
                return
            self._stopping.wait(max(0.0, self.options.interval_s - (stopwatch() - begun)))


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
