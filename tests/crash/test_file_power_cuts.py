"""Objects as files through power cuts: what an answer was given for is on the disk by then."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from omnirelay.model.errors import InvalidOption, TooLittleDurability
from omnirelay.stores.file_systems import file_system
from omnirelay.stores.objects import ObjectJournal
from omnirelay.stores.objects_address import open_bucket
from omnirelay.testing.envelopes import Scribe

SHARD = "orders"


class Synced:
    """What of a folder a power cut now would leave: of a file, what it held when it was last
    synced; of a folder, the names that it had then. The folder itself was always there."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._files: dict[int, bytes] = {}
        self._folders: dict[int, dict[str, int]] = {root.stat().st_ino: {}}
        self._fsync = os.fsync

    def fsync(self, fd: int) -> None:
        self._fsync(fd)
        told = os.fstat(fd)
        if stat.S_ISDIR(told.st_mode):
            with os.scandir(fd) as entries:
                self._folders[told.st_ino] = {one.name: one.inode() for one in entries}
        else:
            self._files[told.st_ino] = Path(f"/proc/self/fd/{fd}").read_bytes()

    def survivors(self) -> dict[str, bytes]:
        return dict(self._below(self._root.stat().st_ino, ""))

    def _below(self, folder: int, path: str) -> Iterator[tuple[str, bytes]]:
        for name, inode in self._folders.get(folder, {}).items():
            if inode in self._folders:
                yield from self._below(inode, f"{path}{name}/")
            elif not name.startswith("."):
                yield f"{path}{name}", self._files.get(inode, b"")


@pytest.fixture
def synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Synced:
    synced = Synced(tmp_path)
    monkeypatch.setattr(os, "fsync", synced.fsync)
    return synced


async def test_an_object_that_was_created_or_put_survives(tmp_path: Path, synced: Synced) -> None:
    bucket = open_bucket(f"file://{tmp_path}/deep/journals")
    await bucket.prepare(SHARD)
    wanted: dict[str, bytes] = {}
    for number, key in enumerate(("a/1", "a/2", "b/c/1", "a/3")):
        assert await bucket.create(key, b"first %d" % number)
        wanted[f"deep/journals/{key}"] = b"first %d" % number
        assert synced.survivors() == wanted, key
    for number, key in enumerate(("a/2", "b/d", "a/2")):
        await bucket.put(key, b"second %d" % number)
        wanted[f"deep/journals/{key}"] = b"second %d" % number
        assert synced.survivors() == wanted, key


async def test_a_journal_cut_off_after_any_append_has_all_that_was_acknowledged(
    tmp_path: Path, synced: Synced
) -> None:
    journal = ObjectJournal(open_bucket(f"file://{tmp_path}/journals"), SHARD)
    await journal.open()
    scribe, bodies = Scribe(SHARD), list[bytes]()
    for count in (1, 3, 2):
        sealed = scribe.seal(count)
        await journal.append(sealed, expected=sealed.first - 1)
        bodies.append(sealed.body)
        for name, body in synced.survivors().items():
            copy = tmp_path / f"after-{len(bodies)}" / name
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(body)
        left = f"file://{tmp_path}/after-{len(bodies)}/journals"
        again = ObjectJournal(open_bucket(left), SHARD)
        await again.open()
        assert await again.read(0, 10) == bodies
        await again.close()
    await journal.close()


MOUNTS = """
27 1 254:0 / / rw,relatime - ext4 /dev/vda rw,discard
30 27 0:27 / /dev/shm rw,relatime shared:2 - tmpfs tmpfs rw,size=2468k
31 27 0:28 / /srv/shared rw - nfs4 files:/x rw,vers=4.2
32 27 0:29 / /srv/my\\040share rw - fuse.glusterfs files:/y rw
33 27 0:30 / /box rw - overlay overlay rw,lowerdir=/l,upperdir=/u
34 27 0:31 / /hasty rw - overlay overlay rw,lowerdir=/l,upperdir=/u,volatile
35 27 0:32 / /twice rw - ext4 /dev/vdb rw
36 35 0:33 / /twice rw - tmpfs tmpfs rw
"""


@pytest.mark.parametrize(
    ("folder", "kind", "doubt"),
    [
        ("/", "ext4", ""),
        ("/srv/journals", "ext4", ""),
        ("/dev/shmem", "ext4", ""),
        ("/dev/shm", "tmpfs", "in memory"),
        ("/dev/shm/journals", "tmpfs", "in memory"),
        ("/srv/shared/journals", "nfs4", "does not tell"),
        ("/srv/my share/journals", "fuse.glusterfs", "does not tell"),
        ("/box/journals", "overlay", ""),
        ("/hasty/journals", "overlay", "leaves syncs out"),
        ("/twice/journals", "tmpfs", "in memory"),
    ],
)
def test_only_a_disk_is_said_to_survive_a_power_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str, kind: str, doubt: str
) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_text(MOUNTS)
    monkeypatch.setattr(os.path, "realpath", lambda path: path)
    found = file_system(folder, str(mounts))
    assert found.kind == kind
    assert (doubt in found.doubt) if doubt and found.doubt else found.doubt == (doubt or None)


def test_a_system_that_names_no_mounts_leaves_it_open(tmp_path: Path) -> None:
    assert file_system(tmp_path, str(tmp_path / "none")).doubt


async def test_a_journal_in_memory_is_not_called_durable_unless_its_operator_does() -> None:
    stated = await open_bucket("file:///dev/shm/journals").durability()
    assert (stated.survives_process_kill, stated.survives_power_loss) == (True, False)
    with pytest.raises(TooLittleDurability, match="in memory"):
        stated.require("power_loss", "file")
    told = await open_bucket("file:///dev/shm/journals?survives=power_loss").durability()
    assert (told.survives_power_loss, told.survives_node_loss) == (True, False)
    with pytest.raises(InvalidOption, match="survives"):
        open_bucket("file:///dev/shm/journals?sync=no")
