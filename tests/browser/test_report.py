"""The report as a real browser shows it: on a phone, on a desk, on paper, in the dark."""

import os
import re
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

VERDICT = """(() => {
  const one = document.querySelector('.verdict'), box = one.getBoundingClientRect();
  return [one.innerText, box.top, box.bottom];
})()"""


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


async def test_the_report_is_printed_on_pages_and_begins_with_the_verdict(
    browser: Browser, report: str
) -> None:
    page = await browser.page(width=720, height=1040, media={"type": "print"})
    await page.open(report)
    verdict = await page.evaluate(VERDICT)
    assert verdict[0].strip(), "it has words"
    assert 0 < verdict[1] < verdict[2] < 1040, "on the first page"
    pdf = await page.printed()
    assert pdf.startswith(b"%PDF-")
    pages = len(re.findall(rb"/Type /Page\b", pdf))
    assert pages == max(int(count) for count in re.findall(rb"/Count (\d+)", pdf))
    assert 2 < pages < 60
    await page.evaluate("document.querySelector('main').remove()")
    assert len(re.findall(rb"/Type /Page\b", await page.printed())) < pages


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
