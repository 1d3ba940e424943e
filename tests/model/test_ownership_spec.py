"""The model of ownership and fencing in docs/spec: searched to its end, and able to fail."""

import importlib
import sys
from functools import reduce
from pathlib import Path
from types import ModuleType

import pytest

from omnirelay.testing import figures

SPEC = Path(__file__).parents[2] / "docs" / "spec"


def load(name: str) -> ModuleType:
    sys.path.insert(0, str(SPEC))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(SPEC))


model, searching = load("ownership"), load("search")


@pytest.mark.timeout(90)
@pytest.mark.parametrize("name", searching.SCOPES)
def test_every_rule_holds_in_every_state(name: str) -> None:
    found = searching.search(searching.SCOPES[name])
    figures.record(
        "exhaustive",
        states=found.states,
        transitions=found.transitions,
        depth=found.depth,
        violations=int(bool(found.breach)),
    )
    assert not found.breach, "\n".join(found.trace)
    assert found.transitions > 200_000


@pytest.mark.parametrize(
    ("mutation", "breach", "steps"),
    [
        ("no_sequence_check", "it had begun before", 4),
        ("no_epoch_check", "though epoch 2 has begun", 10),
        ("same_epoch", "it had begun before", 4),
        ("answer_before_append", "is not in the journal", 4),
        ("no_fence", "the newest grant is 4", 14),
        ("unread_tail", "it is held", 10),
        ("no_take_over", "no way leads from here to an owner", 4),
    ],
)
def test_a_broken_protocol_is_found_by_a_shortest_way(
    mutation: str, breach: str, steps: int
) -> None:
    found = searching.search(model.Scope(mutation=mutation))
    assert breach in found.breach
    assert len(found.trace) == steps
    assert found.trace[0] == "A reads to the end and tries epoch 1"


def test_every_mutation_is_tried_and_told_on_the_command_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for mutation in ("no_sequence_check", "answer_before_append"):
        assert searching.main(["--mutate", mutation]) == 1
    assert "  1 A reads to the end and tries epoch 1" in capsys.readouterr().out
    assert len(model.MUTATIONS) == 7, "the table above has a line for each"


@pytest.mark.parametrize("action", model.ACTIONS)
def test_every_action_names_code_that_exists(action: str) -> None:
    module, _, names = model.ACTIONS[action].partition(":")
    found = reduce(getattr, names.split("."), importlib.import_module(module))
    assert callable(found)


def test_the_page_tells_of_every_file_and_rule() -> None:
    page = (SPEC / "README.md").read_text()
    assert all(path.name in page for path in SPEC.glob("*.py"))
