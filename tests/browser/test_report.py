"""The report as a real browser shows it: on a phone, on a desk, on paper, in the dark."""

import os
from pathlib import Path

import pytest

from omnirelay.pipeline.report_page import page as page_of
from tests.browser.devtools import Browser
from tests.spark.report_rows import START, hostile_pictures

pytestmark = pytest.mark.timeout(300)  # the first of them may have to fetch the browser

VISIBLE = """[...document.querySelectorAll('figure svg[role=img]')].map(one => {
  const box = one.getBoundingClientRect();
  return [one.getAttribute('aria-label') ?? '', box.width, box.height, one.childElementCount];
})"""


@pytest.fixture
def report(tmp_path: Path) -> str:
    file = tmp_path / "report.html"
    file.write_text(page_of(hostile_pictures(), made_ms=START, place="tables"), encoding="utf-8")
    return file.as_uri()


@pytest.mark.parametrize(
    ("width", "media"),
    [
        (360, {"prefers-color-scheme": "light"}),
        (1280, {"prefers-color-scheme": "dark"}),
        (720, {"type": "print"}),
    ],
    ids=["phone", "dark desk", "paper"],
)
async def test_the_report_fits_shows_every_picture_and_asks_for_nothing(
    browser: Browser, report: str, width: int, media: dict[str, str]
) -> None:
    page = await browser.page(width=width, media=media)
    await page.open(report)
    if os.environ.get("OMNIRELAY_SCREENSHOTS"):
        await page.screenshot(Path(os.environ["OMNIRELAY_SCREENSHOTS"]) / f"report-{width}.png")
    assert await page.overflow() == []
    pictures = await page.evaluate(VISIBLE)
    assert len(pictures) > 40
    assert [one for one in pictures if min(one[1:3]) < 5 or one[3] < 2] == []
    assert await page.evaluate("document.title") == "OmniRelay report"
    assert page.complaints == []
    assert page.requests == [report]


async def test_tables_open_and_scroll_within_the_page_on_a_phone(
    browser: Browser, report: str
) -> None:
    page = await browser.page(width=360)
    await page.open(report)
    await page.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
    assert await page.overflow() == []
    assert await page.evaluate("document.querySelectorAll('details table tr').length") > 100


async def test_dark_and_light_are_told_apart_by_what_the_reader_prefers(
    browser: Browser, report: str
) -> None:
    colours = []
    for scheme in ("light", "dark"):
        page = await browser.page(width=800, media={"prefers-color-scheme": scheme})
        await page.open(report)
        colours.append(await page.evaluate("getComputedStyle(document.body).backgroundColor"))
    assert colours == ["rgb(244, 246, 250)", "rgb(18, 22, 29)"]
