"""`peers`, `shards`, `backpressure watch`, `top` and `doctor`."""

import subprocess
from pathlib import Path

import msgspec
import pytest

from omnirelay.testing.servers_hub import HubHost
from tests.cli.command import argv
from tests.cli.command import omnirelay as run
from tests.cli.nodes import Running

pytestmark = pytest.mark.timeout(60)
FULL = ("--namespace", "full")


def test_who_holds_leases_is_shown(node: Running) -> None:
    node("enqueue", "table", "a")
    node("lease", "--peer", "w-3")
    assert "w-3\tanonymous\t1\t" in node("peers").out
    found = msgspec.json.decode(node("peers", "--json").out)
    assert [peer["peerId"] for peer in found["peers"]] == ["w-3"]


def test_every_queue_is_shown(node: Running) -> None:
    rows = [line.split("\t") for line in node("shards").out.splitlines()]
    assert {row[0] for row in rows} >= {"resourcelease", "full", "serial"}
    assert all(row[1] == "ready" for row in rows)
    assert node("top", "--json", "--count", "1", "--queue", "own").json()["namespace"] == "own"
    assert node("top").code == 1, "no terminal, no table"


def test_a_watcher_sees_producers_paused_and_going_on(node: Running) -> None:
    command = argv("backpressure", "watch", "--json", "--url", node.urls["http"])
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as watching:
        try:
            assert watching.stdout is not None
            for number in range(4):
                node("enqueue", "table", f"t{number}", *FULL)
            assert msgspec.json.decode(watching.stdout.readline())["state"] == "active"
            node("drain", "--out", "full.ndjson", *FULL)
            assert msgspec.json.decode(watching.stdout.readline())["state"] == "inactive"
            watching.send_signal(2)
            assert watching.wait(10) == 0
        finally:
            watching.kill()


def test_doctor_finds_a_good_place_good_and_leaves_no_trace(tmp_path: Path) -> None:
    free = [
        word for name in ("http", "grpc", "stream") for word in ("--set", f"{name}=127.0.0.1:0")
    ]
    found = run("doctor", "--json", *free, folder=tmp_path).json()
    assert found["ok"] is True
    findings = msgspec.convert(found["findings"], list[dict[str, str]])
    said = {one["check"]: one["said"] for one in findings}
    assert "survives a killed process, power loss" in said["journal of resourcelease"]
    assert {"python", "sqlite", "clock", "port of http", "open files", "disk"} <= set(said)
    assert list(tmp_path.iterdir()) == []


def test_doctor_names_what_is_bad(tmp_path: Path, node: Running) -> None:
    folder = tmp_path / ".omnirelay"
    folder.mkdir()
    (folder / "resourcelease.db").write_text("not a database, by far " * 50)
    port = node.urls["http"].rpartition(":")[2]
    ended = run("doctor", "--set", f"http=127.0.0.1:{port}", folder=tmp_path)
    assert ended.code == 1
    assert "journal of resourcelease\tbad\t" in ended.out
    assert f"port of http\twarning\t127.0.0.1:{port}: Address already in use" in ended.out
    lost = run("doctor", "--set", "journal=memory:", folder=tmp_path)
    assert "survives nothing" in lost.out


def test_completion_is_offered_for_shells(node: Running) -> None:
    script = run("--show-completion", "bash", _TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION="1")
    assert script.code == 0
    assert "omnirelay" in script.out


def test_doctor_asks_a_hub_what_its_store_survives(tmp_path: Path, hubs: HubHost) -> None:
    doors = ("http", "grpc", "stream")
    free = [word for door in doors for word in ("--set", f"{door}=127.0.0.1:0")]
    url = hubs.fresh()
    ended = run("doctor", *free, "--set", f"journal={url}", folder=tmp_path)
    survives = f"survives a killed process, power loss (sqlite behind {url}: "
    assert f"journal of resourcelease\tgood\tends at sequence 0; {survives}" in ended.out
    keeper = run("doctor", *free, "--set", "hub=true", folder=tmp_path)
    assert "journal of hub\tgood\tsurvives a killed process, power loss" in keeper.out
