"""What every test may take for granted."""

import os

import pytest
from hypothesis import settings

# A red build is never luck: the gate draws the same examples every time. `HYPOTHESIS_PROFILE=fresh`
# draws new ones and remembers those that failed.
settings.register_profile("gate", derandomize=True, database=None, deadline=None)
settings.register_profile("fresh", deadline=None, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "gate"))


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """The relay speaks to asyncio; an `async def test_…` needs no marker and no other loop."""
    return "asyncio"
