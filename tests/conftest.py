"""What every test may take for granted."""

import pytest


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """The relay speaks to asyncio; an `async def test_…` needs no marker and no other loop."""
    return "asyncio"
