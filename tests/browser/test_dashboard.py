"""The node's dashboard as a real browser shows it."""

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

import omnirelay
from tests.browser.devtools import Browser
from tests.cli.nodes import Running, running
from tests.spark.report_rows import HOSTILE

pytestmark = pytest.mark.timeout(300)  # the first of them may have to fetch the browser

ACTIVE = "[...document.querySelectorAll('.tiles dd')][1]?.textContent"


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Running]:
    with running(tmp_path, "--journal", "sqlite:///leases.db") as started:
        yield started


@pytest.mark.parametrize("width", [360, 1280])
async def test_leases_appear_as_they_are_taken(browser: Browser, node: Running, width: int) -> None:
    url = node.urls["http"]
    async with omnirelay.connect(node.urls["stream"], peer_id=HOSTILE[0]) as relay:
        page = await browser.page(width=width)
        await page.open(f"{url}/")
        await page.until(f"{ACTIVE} === '0'")
        for number in range(3):
            await relay.enqueue("table", f"orders-{number}")
        leases = await relay.lease_many(2)
        await page.until(f"{ACTIVE} === '2'")
        await page.until("document.body.innerText.includes('Holders (1)')")
        assert HOSTILE[0] in await page.evaluate("document.body.innerText")
        if os.environ.get("OMNIRELAY_SCREENSHOTS"):
            folder = Path(os.environ["OMNIRELAY_SCREENSHOTS"])
            await page.screenshot(folder / f"dashboard-{width}.png")
        assert await page.overflow() == []
        await asyncio.gather(*(lease.complete() for lease in leases))
        await page.until(f"{ACTIVE} === '0'")
    assert page.complaints == []
    assert {urlsplit(one).netloc for one in page.requests} == {urlsplit(url).netloc}
    assert (await page.evaluate("document.title")).startswith("OmniRelay")


async def test_a_node_that_is_gone_is_said_to_be(browser: Browser, node: Running) -> None:
    page = await browser.page(width=360)
    await page.open(f"{node.urls['http']}/")
    await page.until(f"{ACTIVE} === '0'")
    node.process.kill()
    await page.until("!document.getElementById('stale').hidden")
    assert await page.overflow() == []
