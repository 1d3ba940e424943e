"""One node for all tests of a module; a test that wants its own queue names its own namespace."""

from collections.abc import Iterator

import pytest

from tests.cli.nodes import Running, running

NAMESPACES = ("resourcelease", "drained", "elsewhere", "serial", "full", "dead", "own")


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("node")
    (folder / "omnirelay.toml").write_text(
        '[namespaces.serial.options]\nserialize_by = "resource"\n'
        "[namespaces.full.options]\npending_high = 3\npending_low = 1\nenqueue_wait_ms = 0\n"
    )
    flags = [word for name in NAMESPACES for word in ("--namespace", name)]
    with running(folder, *flags) as started:
        yield started
