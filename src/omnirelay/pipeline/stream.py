"""The pipeline as a stream: Spark says how far the journals are, each micro-batch takes the steps
of a run.

Spark's checkpoint decides what is read next, and the tables' own positions decide what is new. So
it does not matter which of the two a crash left behind: a micro-batch that comes again changes
nothing, and one whose beginning the tables lack is read from the journals.
"""

import json
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Event, Lock
from typing import TYPE_CHECKING

import pyarrow.fs as pafs

from omnirelay.model import limits
from omnirelay.model.errors import InvalidOption, OmniRelayError, Unavailable
from omnirelay.model.ports import failpoint
from omnirelay.pipeline.delta_files import file_system
from omnirelay.pipeline.raised import away_of
from omnirelay.pipeline.run import FAILURES, Pipeline, RunReport

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

log = logging.getLogger(__name__)

CHECKPOINT = "_checkpoint"
POLL_S = 1
"""How soon a stop that was asked for is noticed."""


@dataclass(frozen=True)
class StreamOptions:
    checkpoint: str
    """A folder that outlives the process, for this stream alone."""
    is_once: bool = False
    """Up to where the journals are now, then end."""
    interval_s: float = 1.0
    """Between the beginnings of two micro-batches."""
    rows_max: int | None = None
    """Of a micro-batch, where Spark does not see to it: there the source's options say it."""

    def __post_init__(self) -> None:
        if not 0 <= self.interval_s <= 86_400:
            raise InvalidOption(f"interval is {self.interval_s}, must be 0 to 86400 seconds")


@dataclass
class Stream:
    """`stop` may be called from a signal's handler or another thread."""

    pipeline: Pipeline
    options: StreamOptions
    on_report: Callable[[RunReport], None]
    say: Callable[[str], None] = log.warning
    """Told what it waits for, and when that is there again."""
    last: RunReport | None = None
    _stopping: Event = field(default_factory=Event)
    _working: Lock = field(default_factory=Lock)
    _is_ending: bool = False
    _failure: BaseException | None = None

    def run(self) -> None:
        """Until it is stopped, has caught up (`is_once`), or fails: then that error is raised. A
        node or a server that goes away is waited for, once this stream has read from it; one that
        never answered may be misspelt, and that is an error."""
        while not self._stopping.is_set():
            try:
                self._follow()
            except FAILURES as error:
                away = away_of(error)
                may_wait = not self.options.is_once and self._has_begun()
                if away is None or not may_wait:
                    raise
                self._wait_for_journals(away.message)
            else:
                return

    def _has_begun(self) -> bool:
        """Whether this stream has ever heard from its journals."""
        system, path = file_system(self.options.checkpoint)
        offsets = pafs.FileSelector(f"{path}/offsets", allow_not_found=True)
        return bool(system.get_file_info(offsets))

    def _check(self) -> None:
        """Now and then, also while nothing happens. Raises HoldLost."""
        self.pipeline.hold.check()

    def _follow(self) -> None:
        """One query."""
        self._failure, self._is_ending = None, False
        query = self._start()
        try:
            while not self._stopping.is_set() and not query.awaitTermination(POLL_S):
                self._check()
        except FAILURES as error:
            raise (self._failure or error) from None
        finally:
            self._end(query)
        if self._failure is not None:
            raise self._failure

    def _wait_for_journals(self, why: str) -> None:
        """Returns when all of them answer again, or it is stopped. Raises HoldLost."""
        self.say(f"waiting for the journals: {why}")
        pause_s = limits.STREAM_PAUSE_FIRST_S
        while not self._stopping.wait(pause_s):
            self._check()
            try:
                self.pipeline.intake.journals.heads()
            except Unavailable as error:
                if error.message != why:
                    why = error.message
                    self.say(f"still waiting for the journals: {why}")
                pause_s = min(2 * pause_s, limits.STREAM_PAUSE_LONGEST_S)
            else:
                self.say("the journals answer again: going on")
                return

    def stop(self) -> None:
        self._stopping.set()

    def _end(self, query: "StreamingQuery") -> None:
        """A micro-batch that is under way comes to its end first."""
        self._is_ending = True
        with self._working:
            query.stop()

    def _start(self) -> "StreamingQuery":
        session, journals = self.pipeline.session, self.pipeline.intake.journals
        rows = session.readStream.format("omnirelay").options(**journals.options).load()
        writer = rows.writeStream.foreachBatch(self._batch).option(
            "checkpointLocation", self.options.checkpoint
        )
        if self.options.is_once:
            return writer.trigger(availableNow=True).start()
        return writer.trigger(processingTime=f"{self.options.interval_s} seconds").start()

    def _batch(self, rows: "DataFrame", number: int) -> None:
        with self._working:
            if self._stopping.is_set() or self._is_ending:
                return  # Spark is about to be stopped; what is not done comes again
            try:
                self._steps(rows, number)
                failpoint("pipeline.before_checkpoint")
            except BaseException as error:
                # Spark would hand on no more than the text of an exception, and of what is none
                # (an exit, an interrupt) nothing at all: its thread would wait for ever.
                self._failure = error
                raise OmniRelayError("this stream has failed") from error

    def _steps(self, rows: "DataFrame", number: int) -> None:
        upto = offsets_of(self.options.checkpoint, number)
        start = offsets_of(self.options.checkpoint, number - 1) if number else None
        if upto is None:
            raise OmniRelayError(
                f"{self.options.checkpoint}: Spark's offsets of batch {number} are not there; "
                f"remove the folder, the tables know how far they are"
            )
        self.last = self.pipeline.run(lambda intake: intake.take_batch(rows, start, upto))
        self.on_report(self.last)


def offsets_of(checkpoint: str, batch: int) -> dict[str, int] | None:
    """What Spark wrote down of a micro-batch before it began: one line for each source, after a
    version and a line of its own."""
    system, path = file_system(checkpoint)
    try:
        with system.open_input_stream(f"{path}/offsets/{batch}") as file:
            lines = file.read().decode().splitlines()
    except FileNotFoundError:
        return None
    found = json.loads(lines[-1])
    return {str(shard): int(sequence) for shard, sequence in found.items()}
