"""`omnirelay serve` and `dev`: start, say where, stop cleanly, go on after any end."""

import signal
import socket
import subprocess
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import urlopen

import msgspec
import pytest

from tests.cli.command import argv
from tests.cli.command import omnirelay as run
from tests.cli.nodes import Running, running

pytestmark = pytest.mark.timeout(60)
DOORS = ("http", "grpc", "stream")


def test_a_node_says_where_it_is_and_ends_with_0_when_told(tmp_path: Path) -> None:
    with running(tmp_path, "--ready-file", "ready.json", "--node-id", "n-1") as node:
        said = msgspec.json.decode((tmp_path / "ready.json").read_bytes())
        assert said == {**node.urls, "pid": node.process.pid, "nodeId": "n-1"}
        with urlopen(f"{node.urls['http']}/readyz", timeout=5) as page:
            assert page.status == 200
        assert (tmp_path / ".omnirelay" / "resourcelease.db").exists()
        assert node.stop() == 0
        assert not (tmp_path / "ready.json").exists()


def test_what_was_acknowledged_before_a_kill_is_there_after_it(tmp_path: Path) -> None:
    with running(tmp_path) as node:
        assert node("enqueue", "table", "a").code == 0
        node.stop(signal.SIGKILL)
    with running(tmp_path) as again:
        assert again("stats", "--json").json()["stats"] == {
            "pendingCount": 1,
            "activeLeaseCount": 0,
        }
        assert again.stop(signal.SIGINT) == 0


@pytest.mark.parametrize(
    ("flags", "word"),
    [
        (("--http", "0.0.0.0:0"), "beyond loopback"),
        (("--http", "nowhere"), "HOST:PORT"),
        (("--http", "", "--grpc", "", "--stream", ""), "at least one of"),
        (("--journal", "ftp://x"), "ftp://x"),
        (("--log-level", "loud"), "loud"),
        (("--set", "limits.burstt=5"), "did you mean 'limits.burst'?"),
        (("--set", "limits.burst=many"), "limits.burst"),
        (("--peer", "http://127.0.0.1:1"), "mesh.peers: 'http://127.0.0.1:1'"),
        (("--config", "none.toml"), "none.toml"),
        (("--ready-file", "no/such/folder"), "ready_file"),
    ],
)
def test_a_setting_that_cannot_work_ends_with_2(
    tmp_path: Path, flags: tuple[str, ...], word: str
) -> None:
    places = ("--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0", "--stream", "127.0.0.1:0")
    ended = run("serve", *places, *flags, folder=tmp_path)
    assert ended.code == 2, ended.err
    assert word in ended.complaint


def test_a_port_or_a_journal_that_is_taken_ends_with_1(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as door:
        taken = f"127.0.0.1:{door.getsockname()[1]}"
        ended = run("serve", "--http", taken, "--grpc", "", "--stream", "", folder=tmp_path)
    assert ended.code == 1
    assert "is taken" in ended.complaint
    with running(tmp_path) as node:
        second = run(
            "serve", "--http", "127.0.0.1:0", "--grpc", "", "--stream", "", folder=tmp_path
        )
        assert second.code == 1
        assert f"process {node.process.pid}: stop it" in second.err


# -- dev ----------------------------------------------------------------------------------------


def pending(node: Running) -> object:
    stats = node("stats", "--json").json()["stats"]
    assert isinstance(stats, dict)
    return stats["pendingCount"]


def test_dev_seeds_a_new_queue_once_tells_what_happens_and_goes_on(tmp_path: Path) -> None:
    with running(tmp_path, verb="dev") as node:
        assert pending(node) == 5
        with urlopen(f"{node.urls['http']}/", timeout=5) as page:
            assert b"<html" in page.read()
        node("enqueue", "table", "mine")
        assert node.process.stdout is not None
        told = msgspec.json.decode(node.process.stdout.readline())
        assert (told["eventType"], told["payload"]["resourceId"]) == ("Enqueue", "mine")
        assert node.stop(signal.SIGINT) == 0
    with running(tmp_path, verb="dev") as again:
        assert pending(again) == 6


def test_dev_says_in_words_where_everything_is(tmp_path: Path) -> None:
    places = [word for door in DOORS for word in (f"--{door}", "127.0.0.1:0")]
    process = subprocess.Popen(
        argv("dev", *places),
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        lines = list(iter(process.stdout.readline, "Ctrl-C stops it. What happens:\n"))
        said = {words[0]: words[1] for line in lines if len(words := line.split()) > 1}
        for name in ("dashboard", "metrics", "openapi"):
            with urlopen(said[name], timeout=5) as page:
                assert page.status == 200, name
        assert [urlsplit(said[door]).scheme for door in DOORS] == list(DOORS)
        text = "".join(lines)
        assert f"omnirelay lease --url {said['http']}" in text
        assert "5 items were put in to play with." in text
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=15)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 0
    assert "everything is kept" in err


def test_dev_takes_free_ports_when_the_usual_ones_are_taken(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as door:
        taken = f"127.0.0.1:{door.getsockname()[1]}"
        with running(tmp_path, "--no-seed", "--http", taken, verb="dev") as node:
            assert taken not in node.urls["http"]
            assert pending(node) == 0
