"""The page of the report: whole, for anybody, and nothing in it is more than a name."""

import re
from html.parser import HTMLParser

import pytest

from omnirelay.pipeline import report_svg as svg
from omnirelay.pipeline.report_page import Pictures, page
from omnirelay.pipeline.report_text import brief_moment, count, duration, name, safe
from tests.spark.report_rows import HOSTILE, START, hostile_pictures

VOID = {"meta", "link", "path", "rect", "img", "br"}


class Reading(HTMLParser):
    """Collects what a browser would see, and checks that every element is closed in turn."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def made(pictures: Pictures) -> str:
    return page(pictures, made_ms=START, place=HOSTILE[1])


def test_hostile_names_stay_names() -> None:
    text = made(hostile_pictures())
    reading = Reading(text)
    kinds = {tag for tag, _ in reading.tags}
    assert not kinds & {"script", "img", "iframe", "object", "form", "a", "base"}
    assert text.count("<style>") == 1
    for _, attributes in reading.tags:
        assert not [one for one in attributes if one.startswith("on") or one == "style"]
    assert HOSTILE[0] in "".join(reading.texts)
    assert HOSTILE[5] not in "".join(reading.texts), "a very long name is cut"
    assert "\x00" not in text


def test_the_page_can_load_nothing() -> None:
    text = made(hostile_pictures())
    reading = Reading(text)
    policy = next(a["content"] for tag, a in reading.tags if tag == "meta" and "http-equiv" in a)
    assert policy is not None
    assert policy.startswith("default-src 'none'; img-src data:; style-src 'sha256-")
    wanted = [a for _, a in reading.tags if "src" in a or "href" in a]
    assert wanted == [{"rel": "icon", "href": "data:,"}]
    style = text[text.index("<style>") : text.index("</style>")]
    assert "url(" not in style
    assert "@import" not in style


def test_every_picture_says_what_it_shows() -> None:
    reading = Reading(made(hostile_pictures()))
    pictures = [a for tag, a in reading.tags if tag == "svg" and a.get("aria-hidden") != "true"]
    assert len(pictures) > 40
    assert all(one.get("role") == "img" and one.get("aria-label") for one in pictures)
    assert sum(tag == "details" for tag, _ in reading.tags) == 9


def test_lag_has_a_picture_where_readers_were_told_of() -> None:
    pictures = hostile_pictures()
    assert "Replication lag" in made(pictures)
    silent = [{**row, "replication_lag_ms": None} for row in pictures.of("windows")]
    assert "Replication lag" not in made(Pictures({"windows": silent}))


def test_a_page_of_nothing_says_what_is_missing() -> None:
    text = made(Pictures({}))
    Reading(text)
    assert "Not audited" in text
    assert "The table slo_by_window is not there yet, or empty." in text
    assert "No resource was ever leased." in text
    assert "No table has a position yet." in text


@pytest.mark.parametrize("steps", [1, 2])
def test_a_minute_alone_can_be_drawn(steps: int) -> None:
    Reading(made(hostile_pictures(steps)))


def test_a_clean_audit_is_said_to_be_one() -> None:
    run = {"run_id": "r", "ended_ms": START, "events": 5, "findings": 0, "verdict": "proved"}
    text = made(Pictures({"runs": [run]}))
    assert "Audit: proved, nothing found" in text
    assert "Findings" not in text


# -- pictures and words -------------------------------------------------------------------------


def test_a_line_is_broken_where_nothing_is_known() -> None:
    points = [(0.0, 1.0), (1.0, 2.0), (2.0, None), (3.0, 4.0)]
    drawn = svg.lines([svg.Line("one", points)], top=4, label="x")
    path = re.findall(r'class="line one" d="([^"]+)"', drawn)
    assert path == ["M0 75L100 50M300 0h.01"]


def test_bars_never_leave_their_strip() -> None:
    drawn = svg.bar([("good", 0.8), ("bad", 0.8), ("warn", 5)], label="x")
    widths = [float(one) for one in re.findall(r' width="([\d.]+)"', drawn)]
    assert widths == [240, 60, 0]


def test_the_shortest_hold_can_be_seen_to_the_very_end() -> None:
    drawn = svg.spans([svg.Span("good", 1.0, 1.0, "x")], label="x")
    x, width = map(float, re.findall(r'x="([\d.]+)" width="([\d.]+)"', drawn)[0])
    assert width > 0
    assert x + width <= svg.WIDTH


@pytest.mark.parametrize(
    ("ms", "words"),
    [(0, "0 ms"), (999, "999 ms"), (1500, "1.5 s"), (180_000, "3.0 min"), (9e8, "10.4 d")],
)
def test_durations_are_said_as_people_do(ms: float, words: str) -> None:
    assert duration(ms) == words


def test_counts_keep_their_size_readable() -> None:
    assert [count(one) for one in (0, 1234, 0.123, 12.34, 1.5e9)] == [
        "0",
        "1,234",
        "0.12",
        "12.3",
        "1,500.0 M",
    ]


def test_an_axis_is_as_exact_as_its_span() -> None:
    assert brief_moment(START, span_ms=1000) == "08:53:20"
    assert brief_moment(START, span_ms=10**7) == "08:53"
    assert brief_moment(START, span_ms=10**9) == "09 Oct 08:53"


def test_a_name_is_escaped_once_and_isolated() -> None:
    assert name("a&<b>") == "<bdi>a&amp;&lt;b&gt;</bdi>"
    assert safe("\x00'\"") == "\N{REPLACEMENT CHARACTER}&#x27;&quot;"
