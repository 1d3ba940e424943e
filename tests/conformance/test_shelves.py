"""What every place of an archive must do, in a folder and in the buckets of three clouds."""

import os
import sys
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path

import msgspec
import pytest

from omnirelay.model import limits
from omnirelay.model.errors import InvalidOption, Unavailable
from omnirelay.pipeline.segment import Manifest
from omnirelay.pipeline.shelf import (
    Shelf,
    archived_shards,
    check_archive,
    checksum,
    damage_of,
    open_shelf,
    segments_of,
    swept,
)
from omnirelay.testing.servers_objects import ObjectServer

PLACES = ("folder", "s3", "gs", "az")
_numbers = count()


@pytest.fixture(params=PLACES)
def address(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "folder":
        return str(tmp_path / "archive")
    server = request.getfixturevalue(request.param)
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    return str(server.url(f"shelf{next(_numbers)}"))


@pytest.fixture
def shelf(address: str) -> Shelf:
    return open_shelf(address)


def put(shelf: Shelf, shard: str, rows: bytes, *, first: int = 1, last: int = 9) -> str:
    """Rows alone, as who is killed before the manifest leaves them; their name."""
    manifest = Manifest(shard=shard, first=first, last=last, checksum=checksum(rows))
    fresh = shelf.fresh(shelf.place(shard), first)
    fresh.file.write(rows)
    fresh.file.flush()
    name, _ = shelf.named(manifest)
    shelf.put(shelf.place(shard), name, fresh)
    fresh.discard()
    return name


def add(shelf: Shelf, shard: str, rows: bytes, *, first: int = 1, last: int = 9) -> bool:
    """A whole segment; whether its manifest was the first."""
    name = put(shelf, shard, rows, first=first, last=last)
    manifest = Manifest(
        shard=shard, first=first, last=last, bytes=len(rows), checksum=checksum(rows), file=name
    )
    _, listed = shelf.named(manifest)
    return shelf.create(shelf.place(shard), listed, msgspec.json.encode(manifest))


def test_what_was_put_is_listed_and_read_by_whoever_opens_the_address(address: str) -> None:
    shelf = open_shelf(address)
    with shelf.alone(shelf.place("s")):
        assert add(shelf, "s", b"later", first=10, last=12)
        assert add(shelf, "s", b"sooner")
    found = segments_of(address, "s")
    assert [(one.manifest.first, one.manifest.last) for one in found] == [(1, 9), (10, 12)]
    place, name = found[1].path.split("/")[-2:]
    assert open_shelf(address).read(place, name, 5) == b"later"
    assert [damage_of(one) for one in found] == [None, None]
    assert archived_shards(address) == ["s"]


def test_where_nothing_is_there_is_nothing(shelf: Shelf) -> None:
    place = shelf.place("s")
    assert (shelf.places(), shelf.names(place)) == ([], [])
    assert shelf.read_small(place, ["a.json", "b.json"]) == [None, None]
    assert segments_of(shelf, "s") == []
    with pytest.raises(OSError, match=r"(?i)no such") as lost:
        shelf.read(place, "a.parquet", 5)
    assert lost.value.strerror
    shelf.remove(place, ["a.parquet"])


def test_rows_too_large_for_one_request_come_back_whole(shelf: Shelf) -> None:
    rows = os.urandom(limits.OBJECT_PART_BYTES + 12_345)
    name = put(shelf, "s", rows)
    assert shelf.read(shelf.place("s"), name, len(rows)) == rows
    with pytest.raises(OSError, match=r"(?i)no such"):
        shelf.read(shelf.place("s"), f"x{name}", len(rows))


def test_of_many_that_put_one_manifest_one_is_first_and_its_words_stay(shelf: Shelf) -> None:
    place = shelf.place("s")
    with shelf.alone(place):
        put(shelf, "s", b"rows")
    words = [b"%d" % number for number in range(6)]
    # A folder's half-written file has one name, so there only one at a time may try.
    with ThreadPoolExecutor(1 if shelf.is_near else 6) as pool:
        told = list(pool.map(lambda body: shelf.create(place, "1.json", body), words))
    assert sum(told) == 1
    assert shelf.read_small(place, ["1.json"]) == [words[told.index(True)]]


def test_rows_that_lost_are_swept_and_those_that_a_manifest_speaks_of_are_not(
    shelf: Shelf,
) -> None:
    place = shelf.place("s")
    with shelf.alone(place):
        lost = put(shelf, "s", b"an attempt that was killed", last=5)
        assert add(shelf, "s", b"rows")
        assert [one.manifest.last for one in swept(shelf, "s")] == [9]
        assert lost not in shelf.names(place)
        assert [damage_of(one) for one in swept(shelf, "s")] == [None]


def test_rows_of_a_writer_that_may_be_at_work_are_left_alone(shelf: Shelf) -> None:
    place = shelf.place("s")
    with shelf.alone(place):
        assert add(shelf, "s", b"rows")
        ahead = put(shelf, "s", b"without a manifest yet", first=10, last=12)
        swept(shelf, "s")
        # In a folder who is alone knows that there is no such writer.
        assert (ahead in shelf.names(place)) != shelf.is_near


@pytest.mark.parametrize("shard", ["a/b", "..", "größe", "A b", "x%2F", "_probe", "n" * 300])
def test_any_name_of_a_shard_has_a_place_of_its_own(shelf: Shelf, shard: str) -> None:
    if shelf.is_near and len(shard) > 255:
        return  # no file system takes it, and no queue has such a name
    with shelf.alone(shelf.place(shard)):
        add(shelf, shard, b"rows")
        add(shelf, "other", b"rows")
    assert "/" not in shelf.place(shard)
    assert sorted(archived_shards(shelf)) == sorted([shard, "other"])


@pytest.mark.parametrize(
    ("address", "why"),
    [
        ("s3://key:hidden-word@bucket/x", "neither # nor a user or password"),
        ("s3://bucket/x?secret=hidden-word", "credentials come from the environment"),
        ("s3://", "names no bucket"),
        ("hdfs://u:hidden-word@name/x", "name a folder, or s3://bucket/prefix"),
        (" ", "names no archive"),
    ],
)
def test_what_cannot_be_an_archive_is_refused_without_its_secrets(address: str, why: str) -> None:
    with pytest.raises(InvalidOption, match=why) as refused:
        check_archive(address)
    assert "hidden-word" not in str(refused.value)


def test_a_bucket_without_its_package_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "obstore.exceptions", None)
    with pytest.raises(InvalidOption, match=r"pip install 'omnirelay\[objects\]'"):
        open_shelf("s3://bucket/x")


def test_a_bucket_that_is_not_there_is_named(
    s3: ObjectServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in s3.environment.items():
        monkeypatch.setenv(name, value)
    shelf = open_shelf("s3://nobodys/archive")
    with pytest.raises(Unavailable, match="s3://nobodys/archive: there is no such bucket"):
        shelf.names("s")
    with pytest.raises(Unavailable, match="there is no such bucket"), shelf.alone("s"):
        pass


def test_keys_that_are_refused_are_not_shown(
    az: ObjectServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in az.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", "bm90IGl0")
    shelf = open_shelf("az://journals/archive")
    with pytest.raises(Unavailable, match="correct the credentials") as unread:
        shelf.names("s")
    with (
        pytest.raises(InvalidOption, match="correct the credentials") as unwritten,
        shelf.alone("s"),
    ):
        pass
    assert "bm90IGl0" not in f"{unread.value} {unwritten.value}"
