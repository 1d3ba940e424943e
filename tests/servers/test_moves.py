"""A journal is carried from any store to any other, byte for byte, however often it is cut off."""

import resource
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import omnirelay
from omnirelay import KeepOptions, Payload
from omnirelay.cli.carrying import carry
from omnirelay.cli.keeping import _backup as back_up
from omnirelay.journal.checkpoint import Checkpoint
from omnirelay.journal.copying import MIRROR
from omnirelay.lease.image import facts
from omnirelay.mesh.recovery import recover
from omnirelay.model import limits
from omnirelay.model.errors import Corrupt, JournalOwned, OtherJournal
from omnirelay.model.ports import set_failpoint
from omnirelay.stores.outside import look_outside
from omnirelay.stores.sqlite_positions import SqliteCheckpoints
from tests.cli.command import argv
from tests.cli.command import omnirelay as run
from tests.servers.served import SERVED

if TYPE_CHECKING:
    from omnirelay.testing.servers_nats import NatsServers
    from omnirelay.testing.servers_objects import ObjectServer

_numbers = count()
SHARD = "resourcelease"
STEPS = (
    ("copy.before_envelopes", 1),
    ("copy.after_envelopes", 1),
    ("copy.before_envelopes", 3),
    ("copy.after_part", 2),
    ("copy.after_snapshot", 1),
    ("copy.after_position", 1),
)


@pytest.fixture(autouse=True)
def _few_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "COPY_ENVELOPES_MAX", 2)


class Interrupted(Exception):
    """Stands for a process that dies there."""


@contextmanager
def dying_at(name: str, times: int) -> Iterator[None]:
    left = [times]

    def hook(reached: str) -> None:
        left[0] -= reached == name
        if not left[0]:
            raise Interrupted(name)

    set_failpoint(hook)
    try:
        yield
    finally:
        set_failpoint(None)


def address(request: pytest.FixtureRequest, kind: str, folder: Path) -> str:
    if kind in SERVED:
        return SERVED[kind](request.getfixturevalue)
    if kind == "nats":
        nats: NatsServers = request.getfixturevalue("nats_one")
        return nats.url(f"M{next(_numbers)}")
    if kind == "file":
        return f"file://{folder}/journals"
    if kind == "sqlite":
        return f"sqlite:///{folder}/arrived.db"
    objects: ObjectServer = request.getfixturevalue(kind)
    patch: pytest.MonkeyPatch = request.getfixturevalue("monkeypatch")
    for name, value in objects.environment.items():
        patch.setenv(name, value)
    return objects.url(f"m{next(_numbers)}")


def made(file: Path, *, is_pruned: bool = True, items: int = 60) -> str:
    """A journal with a snapshot, whose beginning was pruned if asked for; and two readers of it."""
    keep = KeepOptions(snapshot_every=25, retain_ms=0 if is_pruned else 1 << 40)
    with omnirelay.connect_sync(f"sqlite:///{file}", keep=keep) as relay:
        for number in range(items):
            relay.enqueue("table", f"t{number}", body=bytes(200))
        relay.lease(peer_id="w-1").take().complete()
    return f"sqlite:///{file}"


async def note_readers(file: Path, *readers: Checkpoint) -> None:
    store = SqliteCheckpoints(f"{file}-positions")
    for reader in readers:
        await store.write(reader)
    await store.close()


class Whole:
    """All that a journal is."""

    def __init__(self, first: int, bodies: list[bytes], state: bytes, readers: object) -> None:
        self.all = (first, bodies, state, readers)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Whole) and self.all == other.all

    __hash__ = None  # type: ignore[assignment]


async def whole(url: str) -> Whole:
    seen = await look_outside(url, SHARD)
    first = await seen.source.first()
    bodies = await seen.source.read(first - 1, 1000)
    state = facts((await recover(seen.source)).state)
    readers = await seen.checkpoints.readers(SHARD)
    kept = [reader for reader in readers if not reader.name.startswith(MIRROR)]
    await seen.close()
    return Whole(first, bodies, state, kept)


async def carried(source: str, target: str) -> None:
    seen = await look_outside(source, SHARD)
    try:
        await carry(seen, target)
    finally:
        await seen.close()


@pytest.mark.timeout(90)
@pytest.mark.parametrize("is_pruned", [True, False], ids=["pruned", "from one on"])
async def test_a_journal_goes_through_every_store_and_is_the_same_in_the_end(
    request: pytest.FixtureRequest, tmp_path: Path, is_pruned: bool
) -> None:
    source = made(tmp_path / "home.db", is_pruned=is_pruned)
    readers = [Checkpoint("audit", SHARD, 61, {"w-1": 50}, 7), Checkpoint("mirror:x", SHARD, 60)]
    await note_readers(tmp_path / "home.db", *readers)
    other = made(tmp_path / "other.db", items=5)
    wanted = await whole(source)
    assert (wanted.all[0] > 1) == is_pruned
    for kind in ("postgres", "redis", "nats", "file", "s3", "gs", "az", "hub", "sqlite"):
        target = address(request, kind, tmp_path)
        for name, times in STEPS if is_pruned else STEPS[1:3]:
            with dying_at(name, times), pytest.raises(Interrupted):
                await carried(source, target)
        await carried(source, target)
        assert await whole(target) == wanted, kind
        with pytest.raises(OtherJournal):
            await carried(other, target)
        assert await whole(target) == wanted, kind
        source = target


@pytest.mark.timeout(60)
async def test_a_backup_that_is_cut_off_goes_on_and_holds_everything(tmp_path: Path) -> None:
    source = made(tmp_path / "home.db")
    await note_readers(tmp_path / "home.db", Checkpoint("audit", SHARD, 61, {"w-1": 50}, 7))
    file, torn = tmp_path / "copy.backup", tmp_path / "copy.backup.unfinished"
    for name, times in (*STEPS[:-1], ("backup.before_name", 1)):
        with dying_at(name, times), pytest.raises(Interrupted):
            await back_up(source, SHARD, file)
        with torn.open("ab") as unfinished:
            unfinished.write(b'{"v":1,"shard":"resourcelea')
    done = await back_up(source, SHARD, file)
    assert not torn.exists()
    assert done.envelopes_copied < done.envelopes, "it went on"
    wanted = await whole(source)
    assert await whole(str(file)) == wanted
    await carried(str(file), f"sqlite:///{tmp_path}/back.db")
    assert await whole(f"sqlite:///{tmp_path}/back.db") == wanted
    with omnirelay.connect_sync(f"sqlite:///{tmp_path}/back.db") as relay:
        assert relay.stats().pending_count == 59


def spoil_a_byte(text: bytes) -> bytes:
    return text.replace(b'"t59"', b'"t58"')


def lose_a_line(text: bytes) -> bytes:
    lines = text.splitlines(keepends=True)
    return b"".join([*lines[:3], *lines[4:]])


def lose_the_end(text: bytes) -> bytes:
    return text[:-40]


def add_a_line(text: bytes) -> bytes:
    lines = text.splitlines(keepends=True)
    return b"".join([*lines[:3], lines[2], *lines[3:]])


@pytest.mark.parametrize("harm", [spoil_a_byte, lose_a_line, lose_the_end, add_a_line])
async def test_a_damaged_backup_is_refused_and_nothing_is_written(
    tmp_path: Path, harm: object
) -> None:
    assert callable(harm)
    file = tmp_path / "copy.backup"
    await back_up(made(tmp_path / "home.db"), SHARD, file)
    file.write_bytes(harm(file.read_bytes()))
    target = f"sqlite:///{tmp_path}/back.db"
    with pytest.raises(Corrupt):
        await carried(str(file), target)
    assert not (tmp_path / "back.db").exists()


async def test_a_damaged_source_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    source = f"file://{tmp_path}/journals"
    await carried(made(tmp_path / "home.db", is_pruned=False), source)
    names = sorted((tmp_path / "journals" / SHARD).iterdir())
    names[20].write_bytes(names[20].read_bytes().replace(b"table", b"chair"))
    with pytest.raises(Corrupt) as caught:
        await carried(source, f"sqlite:///{tmp_path}/back.db")
    assert caught.value.sequence == 21
    assert not (tmp_path / "back.db").exists()


async def test_a_target_that_went_on_by_itself_is_left_alone(tmp_path: Path) -> None:
    source = made(tmp_path / "home.db", is_pruned=False)
    target = f"file://{tmp_path}/journals"
    await carried(source, target)
    async with omnirelay.connect(target) as relay:
        await relay.enqueue("table", "theirs")
    before = await whole(target)
    with omnirelay.connect_sync(source) as own:
        own.enqueue_many([Payload("table", f"more{n}") for n in range(5)])
        own.enqueue("table", "last")
    with pytest.raises(OtherJournal) as caught:
        await carried(source, target)
    assert "is not what this journal has there" in caught.value.message
    assert await whole(target) == before


@pytest.mark.timeout(60)
def test_a_move_killed_in_the_middle_goes_on_where_it_was(tmp_path: Path) -> None:
    home = tmp_path / "home.db"
    source, target = f"sqlite:///{home}", f"file://{tmp_path}/journals"
    with omnirelay.connect_sync(source) as relay:
        for number in range(700):
            relay.enqueue("table", f"t{number}")
    words = ("journal", "migrate", "--from", source, "--to", target, "--json")
    folder = tmp_path / "journals" / SHARD
    with subprocess.Popen(argv(*words), stdout=subprocess.DEVNULL) as moving:
        _wait_for(folder, 40, moving)
        moving.send_signal(signal.SIGKILL)
    there = len(list(folder.glob("*.json")))
    assert there < 701, "it was killed in the middle"
    done = run(*words).json()
    assert done["ok"] is True
    assert (done["lastSequence"], done["envelopes"]) == (701, 701)
    assert done["envelopesCopied"] == 701 - there
    again = run(*words).json()
    assert "envelopesCopied" in again
    assert again["envelopesCopied"] == 0


def _wait_for(folder: Path, files: int, process: "subprocess.Popen[bytes]") -> None:
    until = time.monotonic() + 30
    while not folder.exists() or len(list(folder.glob("*.json"))) < files:
        assert process.poll() is None, "it ended before it was killed"
        assert time.monotonic() < until
        time.sleep(0.002)


@pytest.mark.parametrize(
    ("source", "target", "code"),
    [
        ("memory:", "sqlite:///{t}/b.db", 2),
        ("sqlite:///{t}/no.db", "sqlite:///{t}/b.db", 3),
        ("sqlite:///{t}/home.db", "memory:", 2),
        ("sqlite:///{t}/home.db", "sqlite:///{t}/no/b.db", 1),
        ("sqlite:///{t}/home.db", "gopher://x", 2),
        ("file://{t}/nothing", "sqlite:///{t}/b.db", 1),
        ("redis://127.0.0.1:1/0", "sqlite:///{t}/b.db", 3),
    ],
)
def test_a_move_that_cannot_be_meant_is_refused(
    tmp_path: Path, source: str, target: str, code: int
) -> None:
    made(tmp_path / "home.db", items=3)
    places: Sequence[str] = [one.format(t=tmp_path) for one in (source, target)]
    ended = run("journal", "migrate", "--from", places[0], "--to", places[1])
    assert ended.code == code, ended.err
    assert ended.out == ""
    assert ended.complaint
    assert not (tmp_path / "b.db").exists()


def test_a_backup_that_finds_no_room_goes_on_when_there_is_some(tmp_path: Path) -> None:
    source = made(tmp_path / "home.db", is_pruned=False, items=150)
    file = tmp_path / "copy.backup"
    words = ("journal", "backup", source, "--out", str(file), "--json")
    full = subprocess.run(
        argv(*words),
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, 40_000)),
        capture_output=True,
        text=True,
        timeout=18,
        check=False,
    )
    assert full.returncode == 1, full.stderr
    assert "no room left on the disk" in full.stderr
    assert not file.exists()
    done = run(*words).json()
    assert (done["ok"], done["lastSequence"]) == (True, 153)
    assert done["envelopesCopied"] < done["envelopes"]  # type: ignore[operator]


async def test_a_journal_is_moved_under_its_writer_and_the_rest_of_it_later(tmp_path: Path) -> None:
    source, target = f"sqlite:///{tmp_path}/home.db", f"sqlite:///{tmp_path}/arrived.db"
    with omnirelay.connect_sync(source) as relay:
        for part in range(2):
            relay.enqueue_many([Payload("table", f"t{part}-{n}") for n in range(20)])
            relay.enqueue("table", f"t{part}")
            await carried(source, target)
            assert await whole(target) == await whole(source)
        with pytest.raises(JournalOwned):
            await carried(target, source)
