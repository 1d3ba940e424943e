"""An embedded queue, once in memory and once in a file: the API must not tell them apart."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

import omnirelay
from omnirelay.model.ports import set_failpoint
from tests.embedded.signals import QUICK, Failpoints


@pytest.fixture(params=["memory", "sqlite"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return "memory:" if request.param == "memory" else f"sqlite:///{tmp_path}/leases.db"


@pytest.fixture
def file_url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/leases.db"


@pytest.fixture
async def relay(url: str) -> AsyncIterator[omnirelay.Relay]:
    async with omnirelay.connect(url, options=QUICK) as relay:
        yield relay


@pytest.fixture
def failpoints() -> Iterator[Failpoints]:
    found = Failpoints()
    set_failpoint(found.hit)
    yield found
    set_failpoint(None)
