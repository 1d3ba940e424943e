"""How many connections one client address may have at a door."""

import logging
from collections.abc import Callable
from functools import lru_cache
from ipaddress import IPv6Address, ip_address
from typing import Final

from omnirelay.model import limits
from omnirelay.model.errors import Overloaded
from omnirelay.model.ports import Clock

log = logging.getLogger(__name__)

SAID_MS: Final = 10_000
"""Refusals are logged no more often, whoever comes."""
_NETWORK_BITS: Final = 64
"""Whoever has one IPv6 address has all of its network."""


class PerAddress:
    """Holds one number for each address that is connected. Unix sockets have none and are not
    counted."""

    def __init__(
        self,
        door: str,
        clock: Clock,
        *,
        most: int = limits.CONNECTIONS_PER_ADDRESS_MAX,
        is_exempt: Callable[[str], bool] = lambda address: False,
    ) -> None:
        """`most` 0 is no bound. Who `is_exempt` must not change."""
        self._door = door
        self._clock = clock
        self._most = most
        self._is_exempt = is_exempt
        self._counts: dict[str, int] = {}
        self._refused = 0
        self._said_ms: int | None = None

    def __len__(self) -> int:
        return len(self._counts)

    def enter(self, address: str) -> None:
        """Raises Overloaded for one too many, which is not counted."""
        if not self._most or (counted := _counted(address)) is None or self._is_exempt(address):
            return
        count = self._counts.get(counted, 0)
        if count >= self._most:
            self._say(address)
            raise Overloaded(f"this node takes {self._most} connections of one address")
        self._counts[counted] = count + 1

    def leave(self, address: str) -> None:
        """For each that was let in."""
        if not self._most or (counted := _counted(address)) is None or self._is_exempt(address):
            return
        left = self._counts[counted] - 1
        if left:
            self._counts[counted] = left
        else:
            del self._counts[counted]

    def _say(self, address: str) -> None:
        self._refused += 1
        now = self._clock.monotonic_ms()
        if self._said_ms is not None and now - self._said_ms < SAID_MS:
            return
        log.warning(
            "%s refused %d connections beyond the %d of one address, the last from %s",
            self._door,
            self._refused,
            self._most,
            address,
        )
        self._said_ms, self._refused = now, 0


@lru_cache(maxsize=1024)
def _counted(address: str) -> str | None:
    """What stands for an address; None for what is none."""
    try:
        parsed = ip_address(address.partition("%")[0])
    except ValueError:
        return None
    if isinstance(parsed, IPv6Address):
        if parsed.ipv4_mapped is not None:
            return str(parsed.ipv4_mapped)
        return f"{int(parsed) >> (128 - _NETWORK_BITS):x}"
    return str(parsed)
