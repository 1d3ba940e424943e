"""A simulated loop that several processes share, one of which may stand still.

Each callback belongs to the process in whose context it was made. While that process is paused, its
callbacks wait and its clock runs on, as under SIGSTOP; what it had sent before still arrives.
"""

from contextvars import Context, ContextVar, copy_context
from typing import TYPE_CHECKING, Any

from omnirelay.testing.loop import SimLoop

if TYPE_CHECKING:
    import asyncio

_process: ContextVar[object] = ContextVar("process", default=None)


def process_context(process: object) -> Context:
    """For the tasks and callbacks of one process."""
    context = copy_context()
    context.run(_process.set, process)
    return context


NOBODY = process_context(None)
"""For what no process can hold up: the network, a server."""


class PausingLoop(SimLoop):
    def __init__(self, **options: Any) -> None:  # those of SimLoop
        super().__init__(**options)
        self._held: dict[object, list[asyncio.Handle]] = {}

    def pause(self, process: object) -> None:
        self._held.setdefault(process, [])

    def resume(self, process: object) -> None:
        self._ready.extend(self._held.pop(process, ()))

    def is_paused(self, process: object) -> bool:
        return process in self._held

    def _permute(self) -> None:
        if self._held:
            self._set_aside()
        if len(self._ready) > 1:
            super()._permute()
        else:
            self.callbacks += len(self._ready)

    def _note_turn(self, labels: list[str]) -> None:
        """A trace of every turn would cost a tenth of the run; what is written and answered, and
        when, shows as well whether two runs are one."""
        self.callbacks += len(labels)

    def _set_aside(self) -> None:
        running: list[asyncio.Handle] = []
        for handle in self._ready:
            context: Context = handle._context  # type: ignore[attr-defined]  # no public way
            running_for = self._held.get(context.get(_process))
            (running if running_for is None else running_for).append(handle)
        self._ready.clear()
        self._ready.extend(running)
