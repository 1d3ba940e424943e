"""What a mesh of a test asks of the network below it. There are two: `cluster_hosts` gives each
node a network of its own, whose packets get lost; `cluster_links` puts a relay into each road, on
any machine and for any user, and can hang up."""

from typing import Protocol

from omnirelay.testing.host import Host


class Road(Protocol):
    """From one to another, and back."""

    @property
    def place(self) -> str:
        """`host:port` of what to connect to at its beginning."""

    def cut(self, *, there: bool = True, back: bool = True) -> None:
        """Nothing arrives there, or back here, or neither. No connection ends by it."""

    def slow_down(self, delay_s: float) -> None:
        """Everything takes so much longer, in either direction."""

    def heal(self) -> None:
        """It is neither cut nor slow. What was not delivered meanwhile arrives late."""


class Net(Protocol):
    @property
    def callers(self) -> Host:
        """Where the test itself is."""

    def host(self) -> Host:
        """For one more process."""

    def road(self, here: Host, there: Host, port: int) -> Road: ...
