"""A queue in memory, in a file, or behind a real node over each wire: the API must not tell them
apart. A test says with `@pytest.mark.places(...)` where it makes sense; all run embedded."""

from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from omnirelay import Relay
from omnirelay.model.ports import set_failpoint
from tests.embedded.places import EMBEDDED, Place
from tests.embedded.signals import QUICK, Failpoints


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "places(*names): where a test of the API runs")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "place" in metafunc.fixturenames:
        mark = metafunc.definition.get_closest_marker("places")
        metafunc.parametrize("place", EMBEDDED if mark is None else mark.args, indirect=True)


@pytest.fixture
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    with ExitStack() as closing:
        yield Place(request.param, tmp_path, closing)


@pytest.fixture
def file_url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/leases.db"


@pytest.fixture
async def relay(place: Place) -> AsyncIterator[Relay]:
    async with place.connect(options=QUICK) as relay:
        yield relay


@pytest.fixture
def failpoints() -> Iterator[Failpoints]:
    found = Failpoints()
    set_failpoint(found.hit)
    yield found
    set_failpoint(None)
