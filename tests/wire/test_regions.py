"""Two regions: one serves and is mirrored, the other stands by, is promoted, fences the first."""

import json
import re
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

import omnirelay
from omnirelay import Unavailable
from omnirelay.journal.checkpoint import Checkpoint
from omnirelay.journal.copying import PRIMARY
from omnirelay.mesh.rest import run_now
from omnirelay.sdk.sync import SyncLease
from omnirelay.stores.sqlite_positions import SqliteCheckpoints
from omnirelay.testing.servers_valkey import ValkeyServer
from tests.cli.nodes import Running, running, start
from tests.servers.served import SERVED, lone_server

pytestmark = pytest.mark.timeout(90)
SHARD = "resourcelease"
PAGE = "/omnirelay/control"


def ready(node: Running) -> tuple[int, str]:
    try:
        with urlopen(f"{node.urls['http']}/readyz", timeout=10) as answer:
            return answer.status, answer.read().decode()
    except HTTPError as refusal:
        return refusal.code, refusal.read().decode()


def ask(node: Running, path: str) -> dict[str, Any]:
    with urlopen(f"{node.urls['http']}{path}", timeout=10) as answer:
        found: dict[str, Any] = json.loads(answer.read())
        return found


def sinks(node: Running) -> dict[str, dict[str, Any]]:
    (shard,) = ask(node, f"{PAGE}/replication/checkpoint")["shards"]
    return {sink["name"]: sink for sink in shard["sinks"]}


def until(is_so: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not is_so():
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.01)


def is_level(node: Running) -> bool:
    (sink,) = sinks(node).values()
    return sink["sequenceLag"] == 0 and not sink.get("lastError")


def enqueue(node: Running, *names: str) -> None:
    with omnirelay.connect_sync(node.urls["http"]) as relay:
        for name in names:
            relay.enqueue("table", name, request_id=name)


def region(folder: Path, name: str) -> Path:
    home = folder / name
    home.mkdir(exist_ok=True)
    return home


def test_a_region_that_was_killed_is_replaced_and_what_was_mirrored_is_there(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    mirror = SERVED["postgres"](request.getfixturevalue)
    east, west = region(tmp_path, "east"), region(tmp_path, "west")
    with (
        running(east, "--node-id", "east", "--mirror", mirror) as primary,
        running(west, "--node-id", "west", "--standby", "--journal", mirror) as standby,
    ):
        enqueue(primary, *(f"t{n}" for n in range(40)))
        with omnirelay.connect_sync(primary.urls["http"]) as relay:
            held = relay.lease(peer_id="w-1", wait=5).take()
        until(lambda: is_level(primary))
        with omnirelay.connect_sync(standby.urls["http"], retry=0) as relay:
            with pytest.raises(Unavailable, match="stands by and takes no work"):
                relay.enqueue("table", "no")
            until(lambda: relay.stats().pending_count == 39)  # it follows hot
        code, why = ready(standby)
        assert (code, "stands by" in why) == (503, True)
        primary.stop(9)
        promoted = standby("promote", "--json").json()
        assert promoted["role"] == "serving"
        assert ready(standby)[0] == 200
        with omnirelay.connect_sync(standby.urls["http"]) as relay:
            stats = relay.stats()
            assert (stats.pending_count, stats.active_lease_count) == (39, 1)
            assert relay.enqueue("table", "t0", request_id="t0").duplicate
            relay.enqueue("table", "new")
        assert standby("complete", token(held)).code == 0, "a holder goes on under its token"
        with running(east, "--node-id", "east", "--mirror", mirror) as back:
            until(lambda: ready(back)[0] == 503)
            assert "another journal is there" in str(sinks(back))
            assert "a mirror was promoted" in ready(back)[1]
            where = f"served by node west at {standby.urls['stream']} since its epoch 2"
            assert ask(back, f"{PAGE}/region")["role"] == "standby"
            with (
                omnirelay.connect_sync(back.urls["http"], retry=0) as relay,
                pytest.raises(Unavailable, match=re.escape(where)),
            ):
                relay.enqueue("table", "no more")
            told: Any = standby("promote", "--json", "--fence-old", back.urls["http"]).json()
            assert [shard["epoch"] for shard in told["shards"]] == [2], "once is enough"
            assert back.stop() == 0
        with running(east, "--node-id", "east", "--mirror", mirror) as again:
            assert ready(again)[0] == 503, "a restart does not make it serve"
            decided = again("promote", "--json", "--accept-loss", "0s").json()
            assert decided["role"] == "serving"
            enqueue(again, "an operator outvotes the mirror")
        assert standby("journal", "verify", mirror).code == 0


def token(lease: SyncLease) -> str:
    own = lease.token
    return f"{own.sequence_id}:{own.attempt}:{own.lease_id.replace('-', '')}"


def test_a_region_hands_over_without_losing_anything_and_stays_down(tmp_path: Path) -> None:
    mirror = f"sqlite:///{tmp_path}/mirror.db"
    east, west = region(tmp_path, "east"), region(tmp_path, "west")
    flags = ("--node-id", "east", "--mirror", mirror)
    with (
        running(east, *flags) as primary,
        running(west, "--node-id", "west", "--standby", "--journal", mirror) as standby,
    ):
        enqueue(primary, *(f"t{n}" for n in range(200)))
        done = standby("promote", "--fence-old", primary.urls["http"])
        assert done.code == 0, done.err
        assert "accepted the loss of 0 events" in done.out
        with omnirelay.connect_sync(primary.urls["http"], retry=0) as relay:
            with pytest.raises(Unavailable, match="stands by"):
                relay.enqueue("table", "late")
            assert relay.stats().pending_count == 200
        with omnirelay.connect_sync(standby.urls["http"]) as relay:
            assert relay.stats().pending_count == 200
            assert len(relay.lease_many(200, wait=5)) == 200
        assert primary.stop() == 0
        with (
            running(east, *flags) as back,
            omnirelay.connect_sync(back.urls["http"], retry=0) as relay,
            pytest.raises(Unavailable, match="stands by"),
        ):
            relay.enqueue("table", "even later")
        assert standby.stop() == 0
    shutil.rmtree(east / ".omnirelay")
    (east / ".omnirelay").mkdir()
    home = f"sqlite:///{east}/.omnirelay/{SHARD}.db"
    ahead = ("--node-id", "other", "--standby", "--journal", mirror, "--mirror", home)
    with running(west, *ahead) as promoted, running(east, "--standby") as back:
        enqueue(promoted, "it was promoted, whatever its flags say")
        done = back("promote", "--fence-old", promoted.urls["http"])
        assert done.code == 0, done.err
        with omnirelay.connect_sync(back.urls["http"]) as relay:
            stats = relay.stats()
            assert (stats.pending_count, stats.active_lease_count) == (1, 200), "home again"


def test_every_node_of_an_old_region_gives_way_when_it_comes_to_write(tmp_path: Path) -> None:
    mirror, journal = f"file://{tmp_path}/mirror", f"file://{tmp_path}/journal"
    flags = ("--journal", journal, "--mirror", mirror, "--epoch-s", "0.5", "--data")
    with (
        running(tmp_path, "--node-id", "east-1", *flags, "east-1") as first,
        running(tmp_path, "--node-id", "east-2", *flags, "east-2") as second,
        running(region(tmp_path, "west"), "--standby", "--journal", mirror) as standby,
    ):
        enqueue(first, "a")
        until(lambda: is_level(first))
        assert standby("promote", "--accept-loss", "20").code == 0
        until(lambda: "a mirror was promoted" in ready(first)[1])
        first.stop(9)
        until(lambda: "a mirror was promoted" in ready(second)[1])
        with (
            omnirelay.connect_sync(second.urls["http"], retry=0) as relay,
            pytest.raises(Unavailable, match="a mirror was promoted"),
        ):
            relay.enqueue("table", "no more")


def test_a_mirror_whose_server_dies_holds_up_nothing_and_catches_up(tmp_path: Path) -> None:
    with lone_server("redis") as server:
        assert isinstance(server, ValkeyServer)
        mirror = server.url("mirror")
        with running(tmp_path, "--mirror", mirror) as node:
            enqueue(node, "a", "b")
            until(lambda: is_level(node))
            server.kill()
            enqueue(node, *(f"t{n}" for n in range(20)))
            until(lambda: bool(sinks(node)[f"mirror:{mirror}"].get("lastError")))
            (sink,) = sinks(node).values()
            assert sink["sequenceLag"] == 20
            assert sink["lagMs"] > 0
            with urlopen(f"{node.urls['http']}/metrics", timeout=10) as answer:
                shown = answer.read().decode()
            assert re.search(r"replication_sequence_lag\{[^}]*\} 20", shown)
            server.start_serving()
            until(lambda: is_level(node))
            enqueue(node, "last words")
            assert node.stop() == 0, "what is committed is given a moment to arrive"
        checked = node("journal", "verify", mirror, "--json").json()
        assert (checked["ok"], checked["events"]) == (True, 24)


@pytest.fixture
def mirrored(tmp_path: Path) -> str:
    """A mirror whose region is gone: it held 11 events, of which 6 came over."""
    with omnirelay.connect_sync(f"sqlite:///{tmp_path}/mirror.db") as relay:
        for number in range(5):
            relay.enqueue("table", f"t{number}")
    return f"sqlite:///{tmp_path}/mirror.db"


def heard(folder: Path, position: int, ms_ago: int) -> None:
    store = SqliteCheckpoints(f"{folder}/mirror.db-positions")
    at = round(time.time() * 1000) - ms_ago
    run_now(store.write(Checkpoint(PRIMARY, SHARD, position, {"time": at}, at)))
    run_now(store.close())


def test_a_standby_that_would_lose_something_is_promoted_only_when_told_so(
    tmp_path: Path, mirrored: str
) -> None:
    west = region(tmp_path, "west")
    with running(west, "--standby", "--journal", mirrored) as standby:
        unheard = standby("promote")
        assert (unheard.code, "no other region was ever heard of" in unheard.err) == (1, True)
        heard(tmp_path, 11, 100_000)
        behind = standby("promote", "--accept-loss", "4", "--accept-loss", "900s")
        assert behind.code == 1
        assert "5 events behind: it ends at 6" in behind.complaint
        silent = standby("promote", "--accept-loss", "5", "--json")
        assert silent.code == 1
        assert json.loads(silent.complaint)["code"] == "error.standby.behind"
        assert "the other region was last heard of 1" in silent.complaint
        for bad in ("x", "-1", "5m", ""):
            assert standby("promote", "--accept-loss", bad).code == 2
        assert ask(standby, f"{PAGE}/region")["role"] == "standby"
        nobody = "http://127.0.0.1:1"
        done = standby(
            "promote", "--fence-old", nobody, "--accept-loss", "5", "--accept-loss", "900s"
        )
        assert done.code == 0, done.err
        assert "it was not told" in done.complaint
        assert "accepted the loss of 5 events" in done.out
        enqueue(standby, "goes on")


def test_a_role_that_cannot_be_read_is_not_guessed(tmp_path: Path) -> None:
    data = tmp_path / ".omnirelay"
    data.mkdir()
    (data / "role.json").write_text('{"role":"king","atMs":1,"why":""}')
    with pytest.raises(AssertionError, match="does not say whether this node serves or stands by"):
        start(tmp_path)
