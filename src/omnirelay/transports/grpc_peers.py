"""Connections of gRPC, which shows them only by the calls that come over them."""

from collections.abc import Iterator
from contextlib import contextmanager

from omnirelay.transports.per_address import PerAddress


class Peers:
    """A connection counts while calls are under way on it."""

    def __init__(self, per_address: PerAddress | None) -> None:
        self._per_address = per_address
        self._calls: dict[str, int] = {}

    @contextmanager
    def calling(self, peer: str) -> Iterator[None]:
        """`peer` as gRPC writes it. Raises Overloaded, for a connection too many."""
        if self._per_address is None:
            yield
            return
        under_way = self._calls.get(peer, 0)
        if not under_way:
            self._per_address.enter(address_of(peer))
        self._calls[peer] = under_way + 1
        try:
            yield
        finally:
            self._calls[peer] -= 1
            if not self._calls[peer]:
                del self._calls[peer]
                self._per_address.leave(address_of(peer))


def address_of(peer: str) -> str:
    """The host of `ipv4:10.0.0.7:55012` or `ipv6:%5B::1%5D:55012`; empty for a Unix socket."""
    family, _, rest = peer.partition(":")
    if family not in ("ipv4", "ipv6"):
        return ""
    host = rest.rpartition(":")[0]
    return host.replace("%5B", "").replace("%5D", "").strip("[]")
