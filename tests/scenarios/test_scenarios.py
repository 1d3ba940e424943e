"""Each text file beside this one, played on the real core, reads the same afterwards."""

from pathlib import Path

import pytest

from omnirelay.testing.scenario import ScenarioError, run

SCENARIOS = sorted(Path(__file__).parent.glob("*.txt"))


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_the_core_does_what_the_scenario_says(path: Path) -> None:
    text = path.read_text()
    assert run(text).splitlines() == text.splitlines()


def test_a_scenario_that_tells_something_else_is_noticed() -> None:
    text = "@0 enqueue table/orders\n        Enqueue 2 table/orders\n"
    assert run(text) == "@0 enqueue table/orders\n        Enqueue 1 table/orders\n"


@pytest.mark.parametrize(
    "line",
    ["@0 dance", "@0 enqueue", "@0 enqueue a/b colour=red", "@0 complete nobody", "enqueue a/b"],
)
def test_a_line_nobody_understands_is_named(line: str) -> None:
    with pytest.raises(ScenarioError, match="line 2"):
        run(f"# title\n{line}\n")
