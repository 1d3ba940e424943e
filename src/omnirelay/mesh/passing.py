"""Calls that were passed on and are not answered yet, and calls that wait for an owner.

An owner that was stopped or cut off does not say so. But the journal shows that another has begun
an epoch, and then whoever waits for the old one need not wait on.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Final

from omnirelay.model.errors import OutcomeUnknown
from omnirelay.rpc.procedure import Procedure

_LOOK_S = 0.02
_GRACE_LOOKS = 15
"""A replaced owner that lives says itself what has become of a call; it gets this long to."""
_WAITING: Final = frozenset({"lease", "leaseBatch", "work"})
"""Verbs that may wait for long, and may be asked again elsewhere."""

Target = Callable[[str], str | None]
"""Where a namespace is served now: an address, None for here, blank if nobody knows."""


class Passing:
    def __init__(self, passings: "Passings", procedure: Procedure, url: str) -> None:
        self.namespace = procedure.namespace
        self.verb = procedure.verb
        self.url = url
        self.looks = 0
        """How often it was seen since its owner was replaced."""
        self._passings = passings
        self._limit: asyncio.Timeout | None = None
        self._why = ""

    @asynccontextmanager
    async def limit(self) -> AsyncGenerator[None]:
        """Raises OutcomeUnknown when the wait was ended."""
        limit = self._limit = asyncio.timeout(None)
        try:
            async with limit:
                yield
        except TimeoutError:
            if not limit.expired():
                raise
            raise OutcomeUnknown(self._why) from None
        finally:
            self._limit = None

    def give_up(self, why: str) -> None:
        if self._limit is not None and not self._why:
            self._why = why
            self._limit.reschedule(0)

    def begin_again(self) -> None:
        self._passings.under_way.add(self)

    def end(self) -> None:
        self._passings.under_way.discard(self)


class Passings:
    """Belongs to one loop."""

    def __init__(self, target: Target) -> None:
        self.under_way: set[Passing] = set()
        self._target = target
        self._waiters: dict[str, set[tuple[str | None, asyncio.Event]]] = {}
        self._is_needed = asyncio.Event()

    def begin(self, procedure: Procedure, url: str) -> Passing:
        passing = Passing(self, procedure, url)
        self.under_way.add(passing)
        self._is_needed.set()
        return passing

    async def wait_for_change(self, namespace: str, target: str | None, most_s: float) -> None:
        """Until the namespace is served elsewhere than at `target`, or the time is up."""
        waiter = (target, asyncio.Event())
        self._waiters.setdefault(namespace, set()).add(waiter)
        self._is_needed.set()
        try:
            async with asyncio.timeout(most_s):
                await waiter[1].wait()
        except TimeoutError:
            return
        finally:
            self._waiters[namespace].discard(waiter)

    def send_away(self, why: str) -> None:
        """End what may wait for long: this node stops."""
        for passing in list(self.under_way):
            if passing.verb in _WAITING:
                passing.give_up(why)

    async def run(self) -> None:
        while True:
            await self._is_needed.wait()
            self._look()
            if not self.under_way and not any(self._waiters.values()):
                self._is_needed.clear()
            else:
                await asyncio.sleep(_LOOK_S)

    def _look(self) -> None:
        waiting = [(name, *one) for name, waiters in self._waiters.items() for one in waiters]
        names = {name for name, _, _ in waiting} | {one.namespace for one in self.under_way}
        targets = {name: self._target(name) for name in names}
        for name, target, changed in waiting:
            if targets[name] not in (target, ""):
                changed.set()
        for passing in list(self.under_way):
            if targets[passing.namespace] in (passing.url, ""):
                passing.looks = 0
                continue
            passing.looks += 1
            if passing.looks > _GRACE_LOOKS:
                passing.give_up(f"the owner of {passing.namespace} was replaced before it answered")
