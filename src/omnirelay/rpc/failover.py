"""Several outbounds to nodes that serve the same: when one does not answer, the next is asked."""

from collections.abc import Sequence

from omnirelay.model.errors import InvalidOption, Unavailable
from omnirelay.rpc.meta import Reply, Request
from omnirelay.rpc.transport import Outbound


class Failover:
    """Stays with the one that answers. It repeats nothing itself: whether a call may be repeated is
    for its caller to know, and the next try goes to the next node."""

    def __init__(self, outbounds: Sequence[Outbound]) -> None:
        if not outbounds:
            raise InvalidOption("failover needs at least one address")
        self._outbounds = tuple(outbounds)
        self._current = 0
        self.name = outbounds[0].name
        self.codec = outbounds[0].codec
        self.is_prompt = all(getattr(one, "is_prompt", False) for one in outbounds)

    async def start(self) -> None:
        for outbound in self._outbounds:
            await outbound.start()

    async def stop(self) -> None:
        for outbound in self._outbounds:
            await outbound.stop()

    async def __call__(self, request: Request) -> Reply:
        tried = self._current
        try:
            return await self._outbounds[tried](request)
        except Unavailable:
            if tried == self._current:  # several calls fail at once; one of them moves on
                self.move_on()
            raise

    def move_on(self) -> None:
        """The next call goes to the next one. For a caller that gave one up which says nothing."""
        self._current = (self._current + 1) % len(self._outbounds)
