"""What only a terminal gets: tables, bars, and the live view."""

from pathlib import Path

import pytest

import omnirelay
from tests.cli.nodes import Running
from tests.cli.terminal import on_a_terminal

pytestmark = pytest.mark.timeout(60)
BOLD = "\x1b[1m"


def test_a_table_has_a_heading_and_columns(tmp_path: Path) -> None:
    words = ("config", "show", "--set-only")
    with on_a_terminal(*words, folder=tmp_path, OMNIRELAY_NODE_ID="[bold]n-1") as screen:
        heading, row = screen.to_the_end().rstrip().split("\r\n")
    assert BOLD in heading
    assert "\t" not in row
    assert row.split() == ["node_id", "[bold]n-1", "env", "OMNIRELAY_NODE_ID"]
    assert row.index("[bold]") == heading.replace(BOLD, "").replace("\x1b[0m", "").index("value")


def test_work_that_takes_a_while_shows_a_bar_and_takes_it_away(tmp_path: Path) -> None:
    journal = f"sqlite:///{tmp_path / 'a.db'}"
    with omnirelay.connect_sync(journal) as relay:
        for number in range(20):
            relay.enqueue("table", f"{number}")
    with on_a_terminal("journal", "verify", journal, folder=tmp_path) as screen:
        shown = screen.to_the_end()
    assert "━" in shown
    assert "100%" in shown
    # Transient: the line is wiped before the verdict is printed.
    assert "\x1b[2K" in shown[shown.rindex("━") :]


def test_top_shows_queues_live_until_q(node: Running) -> None:
    url = node.urls["http"]
    words = ("top", "--queue", "elsewhere", "--queue", "own", "--interval", "0.1", "--url", url)
    with on_a_terminal(*words, folder=node.folder) as screen:
        assert "pending" in screen.until("q ends")
        screen.until_again("elsewhere", 2)
        screen.press("q")
        shown = screen.to_the_end()
    assert "own" in shown
    assert "epoch 1" in shown
