"""The event loop as gRPC is shown it: one that takes news for as long as the process lives.

gRPC has one queue of ended operations for a process. Whichever loop wakes first empties it, and
hands what belongs to another loop on with `call_soon_threadsafe`. An operation that was given up
ends a moment after the call did, and nothing in gRPC's interface waits for that. If its loop was
closed meanwhile, as every `asyncio.run` does, the loop that hands the news on gets the RuntimeError
in its own exception handler: a program is told of a fault by a loop that has none.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, cast
from weakref import WeakValueDictionary


class LastingLoop:
    """Everything but the handing on is the loop's own. Any: as asyncio has it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        # Looked up with every operation.
        self.create_future = loop.create_future
        self.create_task = loop.create_task

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loop, name)

    def call_soon_threadsafe(self, callback: Callable[..., object], *args: Any, **how: Any) -> None:
        if asyncio._get_running_loop() is self._loop:
            callback(*args)  # gRPC calls it at once too, where it knows the loop for its own
            return
        try:
            self._loop.call_soon_threadsafe(callback, *args, **how)
        except RuntimeError:
            if not self._loop.is_closed():
                raise
            callback(*args)  # nobody waits for it any more; what gRPC kept for it is freed


# gRPC keeps each loop it was shown, so it is shown only one for each of ours.
_known: Final[WeakValueDictionary[asyncio.AbstractEventLoop, LastingLoop]] = WeakValueDictionary()


@contextmanager
def lasting_loop() -> Iterator[None]:
    """Channels and servers of gRPC that are made inside take the loop that runs for one that
    lasts. Nothing may be awaited inside."""
    loop = asyncio.get_running_loop()
    lasting = _known.get(loop)
    if lasting is None:
        lasting = _known[loop] = LastingLoop(loop)
    asyncio._set_running_loop(cast("asyncio.AbstractEventLoop", lasting))
    try:
        yield
    finally:
        asyncio._set_running_loop(loop)
