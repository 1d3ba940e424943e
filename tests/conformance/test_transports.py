"""Every transport is held to the same suite."""

from collections.abc import AsyncIterator

import pytest

from omnirelay.testing.transport_suite import TransportSuite, caller
from omnirelay.testing.transport_wires import WIRES, OpenWire

__all__ = ["caller"]


class TestTransports(TransportSuite):
    @pytest.fixture(params=WIRES)
    async def wire(self, request: pytest.FixtureRequest) -> AsyncIterator[OpenWire]:
        async with OpenWire(request.param) as wire:
            yield wire
