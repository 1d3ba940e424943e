"""A progress bar where somebody can see it; nothing anywhere else."""

import sys
from types import TracebackType

from rich.console import Console
from rich.progress import Progress as Bar

from omnirelay.cli.ending import wants_json


class Progress:
    def __init__(self, what: str, *, total: int) -> None:
        # On standard error, so that what is printed stays clean for whoever reads it.
        self._bar = Bar(console=Console(stderr=True), transient=True) if _is_seen() else None
        self._task = self._bar.add_task(what, total=total) if self._bar is not None else None

    def at(self, done: int) -> None:
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, completed=done)

    def at_share(self, share: float) -> None:
        """For what is counted in no whole things: of a total of 1."""
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, completed=share)

    def __enter__(self) -> "Progress":
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.stop()


def _is_seen() -> bool:
    return sys.stderr.isatty() and not wants_json()
