"""The dashboard's files: whole, by themselves, and unable to take a name for markup."""

import re
import shutil
import subprocess
from importlib.resources import files
from pathlib import Path

import pytest

from omnirelay.model.errors import Unimplemented
from omnirelay.ops.dashboard import POLICY, dashboard_pages
from omnirelay.rpc.headers import Headers
from omnirelay.transports.http_pages import PageReply, PageRequest

ASSETS = files("omnirelay.ops").joinpath("assets")
NAMES = sorted(file.name for file in ASSETS.iterdir())
BROWSER = Path(__file__).with_name("ops_browser.mjs")

# Ways for a text to become markup, code or a request to somewhere else.
FORBIDDEN = re.compile(
    r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function|DOMParser|"
    r"createContextualFragment|srcdoc|javascript:|\.style\b|setAttribute\(\s*[\"']on|\bimport\("
)
ABSOLUTE = re.compile(r"(?:https?:)?//[a-z0-9.-]+\.[a-z]", re.IGNORECASE)


async def show(path: str) -> PageReply:
    page = dashboard_pages()["/" if path == "/" else "/assets/*"]
    shown = await page(PageRequest(method="GET", path=path, query={}, headers=Headers([])))
    assert isinstance(shown, PageReply)
    return shown


def text(name: str) -> str:
    return ASSETS.joinpath(name).read_text(encoding="utf-8")


async def test_every_file_is_served_with_its_kind_and_the_strict_policy() -> None:
    for name in NAMES:
        reply = await show(f"/assets/{name}")
        assert reply.headers["content-security-policy"] == POLICY
        assert reply.body == ASSETS.joinpath(name).read_bytes()
    assert (await show("/assets/shard.js")).headers["content-type"].startswith("text/javascript")
    assert (await show("/")).headers["content-type"] == "text/html; charset=utf-8"


def test_the_policy_allows_nothing_inline_and_nobody_else() -> None:
    rules = dict(rule.strip().split(" ", 1) for rule in POLICY.split(";"))
    assert rules["default-src"] == "'none'"
    assert rules["script-src"] == rules["style-src"] == rules["connect-src"] == "'self'"
    assert rules["require-trusted-types-for"] == "'script'"
    assert "unsafe" not in POLICY
    assert "*" not in POLICY


@pytest.mark.parametrize(
    "path",
    [
        "/assets/",
        "/assets/../dashboard.py",
        "/assets/..%2fdashboard.py",
        "/assets//etc/passwd",
        "/assets/index.html/",
        "/assets/INDEX.HTML",
        "/assets/\x00",
    ],
)
async def test_no_path_leads_to_another_file(path: str) -> None:
    with pytest.raises(Unimplemented):
        await show(path)


@pytest.mark.parametrize("name", [name for name in NAMES if name.endswith(".js")])
def test_no_script_can_turn_text_into_markup(name: str) -> None:
    assert FORBIDDEN.search(text(name)) is None


@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_loaded_from_elsewhere(name: str) -> None:
    named = set(ABSOLUTE.findall(text(name).replace("http://www.w3.org/2000/svg", "")))
    assert not named


def test_the_page_has_no_script_or_style_of_its_own_and_names_only_files_that_exist() -> None:
    page = text("index.html")
    assert re.findall(r"<script(?![^>]*\bsrc=)[^>]*>|<style|\sstyle=|\son\w+=", page) == []
    named = re.findall(r'(?:src|href)="/assets/([^"]+)"', page)
    imported = re.findall(r'from "\./([^"]+)"', "".join(map(text, filter(_is_script, NAMES))))
    assert {*named, *imported, "index.html"} == {*NAMES}


def _is_script(name: str) -> bool:
    return name.endswith(".js")


def _luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _contrast(one: str, other: str) -> float:
    light, dark = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
def test_text_stands_out_from_its_ground(theme: int) -> None:
    colours = dict(
        re.findall(r"--([a-z-]+): (#[0-9a-f]{6})", text("dashboard.css").split("@media")[theme])
    )
    pairs = [(ink, ground) for ink in ("text", "soft", "accent") for ground in ("page", "card")]
    pairs += [("bad", "card"), *((tone, f"{tone}-back") for tone in ("good", "bad", "warn"))]
    weak = {pair: _contrast(colours[pair[0]], colours[pair[1]]) for pair in pairs}
    assert {pair: ratio for pair, ratio in weak.items() if ratio < 4.5} == {}


@pytest.mark.skipif(shutil.which("node") is None, reason="needs a JavaScript engine to run it in")
@pytest.mark.parametrize(
    "case",
    [
        "names_are_text",
        "rates_follow_counts",
        "a_restart_begins_a_new_line",
        "silence_is_shown_and_ends",
        "a_refusal_is_shown",
        "rows_and_namespaces_come_and_go",
        "trouble_and_draining_are_said",
        "spans_are_readable",
    ],
)
def test_the_page_behaves(case: str, tmp_path: Path) -> None:
    (tmp_path / "package.json").write_text('{"type":"module"}')
    for name in NAMES:
        (tmp_path / name).write_bytes(ASSETS.joinpath(name).read_bytes())
    ran = subprocess.run(
        ["node", str(BROWSER), str(tmp_path), case],
        capture_output=True,
        text=True,
        timeout=15,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-2000:]
