"""One browser for all of these tests. Without any they fail, and say why they cannot look."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.browser.chromium import Chromium, NoChromium, find
from tests.browser.devtools import Browser, browsing


@pytest.fixture(scope="session")
def chromium() -> Chromium:
    try:
        return find()
    except NoChromium as reason:
        pytest.fail(str(reason))


@pytest.fixture
async def browser(chromium: Chromium, tmp_path: Path) -> AsyncIterator[Browser]:
    async with browsing(chromium, tmp_path / "profile") as opened:
        yield opened
