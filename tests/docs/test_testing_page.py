"""The page about testing does what it says, in a project of its own."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from omnirelay.sdk.sync import SyncRelay
from omnirelay.testing.clock import HandClock

PAGE = Path(__file__).parents[2] / "docs" / "testing.md"


@pytest.mark.timeout(60)  # a node starts twice in it
def test_the_page_s_own_example_passes(tmp_path: Path) -> None:
    conftest, tests = re.findall(r"```py\n(.*?)```", PAGE.read_text(), re.DOTALL)
    (tmp_path / "conftest.py").write_text(conftest)
    (tmp_path / "test_work.py").write_text(tests)
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-W", "error", "-p", "no:cacheprovider"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        # Only what the page asks for: other plugins of this environment are not its business.
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        timeout=55,
        check=False,
    )
    assert "2 passed" in ended.stdout, ended.stdout + ended.stderr


def test_every_fixture_of_the_page_is_there_and_no_other() -> None:
    plugin = PAGE.parents[1] / "src" / "omnirelay" / "testing" / "pytest_plugin.py"
    shipped = re.findall(r"@pytest\.fixture\ndef (\w+)", plugin.read_text())
    assert re.findall(r"^\| `(\w+)` \|", PAGE.read_text(), re.MULTILINE) == shipped


def test_a_delay_passes_when_the_clock_is_moved(
    omnirelay_relay: SyncRelay, omnirelay_clock: HandClock
) -> None:
    omnirelay_relay.enqueue("table", "later", delay=60)
    assert omnirelay_relay.lease_many(1) == []
    omnirelay_clock.advance(60_000)
    (lease,) = omnirelay_relay.lease_many(1)
    lease.complete()
