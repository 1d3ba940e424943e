"""Calls that need no task: begun where they come in, gone on with when what they wait for is there.

A task costs a call three turns of the loop. It is needed by what
asks for the current task (`asyncio.timeout` does) or keeps something in its context; a handler that
only awaits futures can do without. Which those are is said by `Procedure.prompt` and by middleware.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

log = logging.getLogger(__name__)


class Prompt:
    """`ended` hears once how it went: None, or what was raised. `cancel` is as a task's. Nothing is
    raised to who begins it, or to who brings what it waits for."""

    __slots__ = ("_coroutine", "_ended", "_is_over", "_must_cancel", "_waits_for")

    def __init__(
        self, coroutine: Coroutine[Any, Any, None], ended: Callable[[BaseException | None], None]
    ) -> None:
        self._coroutine = coroutine
        self._ended = ended
        self._waits_for: asyncio.Future[Any] | None = None
        self._must_cancel = False
        self._is_over = False

    def begin(self) -> None:
        """As far as it gets; it may be over when this returns."""
        self._step(None)

    def cancel(self) -> None:
        """It hears of it where it waits; one that has ended does not."""
        waits_for = self._waits_for
        if not self._is_over and (waits_for is None or not waits_for.cancel()):
            self._must_cancel = True  # what it waited for came in this moment

    def _step(self, came: "asyncio.Future[Any] | None") -> None:
        self._waits_for = None
        try:
            if self._must_cancel:
                self._must_cancel = False
                waits_for = self._coroutine.throw(asyncio.CancelledError())
            else:
                waits_for = self._coroutine.send(None)
        except StopIteration:
            self._end(None)
        except BaseException as error:
            self._end(error)
        else:
            self._wait(waits_for)

    def _wait(self, waits_for: "asyncio.Future[Any] | None") -> None:
        if waits_for is None:  # it only lets others go first
            asyncio.get_running_loop().call_soon(self._step, None)
            return
        # As a task does: it says that somebody has taken what was yielded.
        waits_for._asyncio_future_blocking = False
        self._waits_for = waits_for
        waits_for.add_done_callback(self._step)

    def _end(self, error: BaseException | None) -> None:
        self._is_over = True
        try:
            self._ended(error)
        except Exception:
            # It may be a shard in the middle of its answers that brought what this waited for.
            log.exception("the end of a call could not be told")
