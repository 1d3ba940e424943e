"""Fixtures for tests of programs that use OmniRelay (docs/testing.md).

A top-level conftest.py asks for them: `pytest_plugins = ["omnirelay.testing.pytest_plugin"]`. They
are no entry point of pytest's: that would import this package into every test run of an
environment it is installed in, before coverage is measured.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from omnirelay.sdk.sync import SyncRelay
from omnirelay.testing.clock import HandClock
from omnirelay.testing.embedded import embedded
from omnirelay.testing.node_process import NodeProcess, node_process


@pytest.fixture
def omnirelay_clock() -> HandClock:
    """Stands still until it is moved: `omnirelay_clock.advance(30_000)`."""
    return HandClock()


@pytest.fixture
def omnirelay_relay(omnirelay_clock: HandClock) -> Iterator[SyncRelay]:
    """An empty queue of this process, in memory, that goes by `omnirelay_clock`."""
    with embedded(omnirelay_clock) as relay:
        yield relay


@pytest.fixture
def omnirelay_node(tmp_path: Path) -> Iterator[NodeProcess]:
    """A real node in a process of its own, started, with its data in the test's folder. It may be
    killed and started again; `omnirelay_node.urls` has its addresses by wire."""
    with node_process(tmp_path) as node:
        node.start()
        yield node
