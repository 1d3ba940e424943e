"""Whether a caller is alone: then its call need not wait for company."""

from collections.abc import Awaitable
from typing import TypeVar

T = TypeVar("T")


class Alone:
    """Calls of one kind on one loop. For one who is alone, gathering would cost two turns of the
    loop each way; so its call leaves from its own task."""

    def __init__(self) -> None:
        self._was_alone = True
        self._under_way = 0

    def may_leave(self, *, others_wait: bool) -> bool:
        return self._was_alone and not self._under_way and not others_wait

    async def leave(self, call: Awaitable[T]) -> T:
        self._under_way += 1
        try:
            return await call
        finally:
            self._under_way -= 1

    def gathered(self, count: int) -> None:
        """So many left together."""
        self._was_alone = count == 1 and not self._under_way
