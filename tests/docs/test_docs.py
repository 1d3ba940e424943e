"""What the documents say is tried: code runs, commands exist, links lead somewhere."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks(language: str) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for page in PAGES:
        for kind, text in FENCE.findall(page.read_text()):
            if kind == language:
                found.append((f"{page.name}-{len(found)}", text))
    return found


@pytest.mark.parametrize("code", [pytest.param(text, id=name) for name, text in blocks("python")])
def test_a_python_example_runs_as_it_is_printed(code: str, tmp_path: Path) -> None:
    script = tmp_path / "example.py"
    script.write_text(code)
    done = subprocess.run(
        [sys.executable, "-W", "error", str(script)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout, "an example that prints nothing shows nothing"


def test_every_make_target_that_is_named_exists() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for page in PAGES:
        code = re.findall(r"`([^`\n]+)`", page.read_text()) + [
            line for _, text in FENCE.findall(page.read_text()) for line in text.splitlines()
        ]
        for line in code:
            named = re.match(r"make (\w+)", line)
            assert named is None or named[1] in targets, f"{page.name}: {line}"


@pytest.mark.timeout(120)  # a process for each
def test_every_command_of_ours_that_is_named_exists() -> None:
    named = set()
    for page in PAGES:
        for words in re.findall(r"`omnirelay ((?:[a-z]+ ?)+)", page.read_text()):
            named.add(tuple(words.split()))
    assert ("demo",) in named
    for words in sorted(named):
        done = subprocess.run(
            [sys.executable, "-c", "import omnirelay.cli; omnirelay.cli.main()", *words, "--help"],
            capture_output=True,
            text=True,
            timeout=20,
            check=False,
        )
        assert done.returncode == 0, f"omnirelay {' '.join(words)}: {done.stderr}"


@pytest.mark.parametrize("page", [pytest.param(page, id=page.name) for page in PAGES])
def test_every_link_inside_the_repository_leads_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_every_test_folder_that_is_named_exists() -> None:
    for page in PAGES:
        for folder in re.findall(r"`(tests/[a-z_/.]+)`", page.read_text()):
            assert (ROOT / folder).exists(), f"{page.name} names {folder}"
