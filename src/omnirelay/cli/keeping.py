"""`omnirelay journal backup`, `restore` and `export`: a journal's file, copied while it is in use,
put back where none is, and its events as lines."""

import asyncio
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated, BinaryIO

import apsw
import msgspec
import typer

from omnirelay.cli.ending import CommandFailed, JsonFlag, print_json
from omnirelay.cli.journal import (
    JournalNamespace,
    JournalUrl,
    Verdict,
    look_at,
    sqlite_path,
    verify_all,
)
from omnirelay.cli.progress import Progress
from omnirelay.cli.saying import counted
from omnirelay.journal.events import encode_event
from omnirelay.journal.follower import tail
from omnirelay.model.errors import InvalidArgument, Unavailable
from omnirelay.stores.highwater import peek
from omnirelay.stores.sqlite import SqliteReader, mark_path
from omnirelay.stores.sqlite_file import OwnerLock, check_ours, connect, translate
from omnirelay.stores.sqlite_look import look

PAGES_A_STEP = 1024
"""The writer may commit between two steps; fewer pages make its waits shorter."""
_SHARDS = "SELECT DISTINCT shard FROM journal ORDER BY shard"


class Shard(msgspec.Struct, frozen=True, rename="camel"):
    namespace: str
    last_sequence: int
    epoch: int


# -- backup -------------------------------------------------------------------------------------


def backup(
    url: JournalUrl,
    *,
    out: Annotated[Path, typer.Option(metavar="FILE", help="The copy; must not be there yet.")],
    json: JsonFlag = False,
) -> None:
    """Copy a journal's file as of one moment, also while a node writes it, and check the copy."""
    source = sqlite_path(url)
    if not Path(source).is_file():
        raise Unavailable(f"{source}: there is no such file")
    with _new_file(out) as partial_copy:
        _copy(source, str(partial_copy), "copying")
        shards = _verified(str(partial_copy))
    _say(shards, f"copied to {out}", json=json)


def _say(shards: list[Shard], what: str, *, json: bool) -> None:
    if json:
        print_json({"ok": True, "shards": shards})
        return
    ends = ", ".join(f"{one.namespace} up to sequence {one.last_sequence}" for one in shards)
    print(f"{what}: {ends or 'an empty journal'}; every link was checked")


@contextmanager
def _new_file(path: Path) -> Iterator[Path]:
    """A name beside it until it is whole and synced; then its own. Never over another file."""
    if path.exists():
        raise CommandFailed(f"{path} is there already: choose another")
    unfinished = path.with_name(f"{path.name}.unfinished")
    unfinished.unlink(missing_ok=True)
    try:
        yield unfinished
        _sync(unfinished)
        os.link(unfinished, path)  # unlike a rename, it refuses a file that came meanwhile
    except FileExistsError:
        raise CommandFailed(f"{path} is there already: choose another") from None
    finally:
        for name in (unfinished, *map(Path, (f"{unfinished}-wal", f"{unfinished}-shm"))):
            name.unlink(missing_ok=True)
    _sync(path.absolute().parent)


def _sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _copy(source: str, target: str, what: str) -> None:
    try:
        reading = connect(source, read_only=True, check=partial(check_ours, path=source))
        try:
            _copy_pages(reading, target, what)
        finally:
            reading.leave()
    except apsw.Error as error:
        raise translate(error, source) from error


def _copy_pages(reading: apsw.Connection, target: str, what: str) -> None:
    writing = apsw.Connection(target)
    try:
        with (
            writing.backup("main", reading, "main") as copying,
            Progress(what, total=1) as bar,
        ):
            while not copying.done:
                copying.step(PAGES_A_STEP)
                bar.at_share(1 - copying.remaining / max(1, copying.page_count))
        # A copy needs no log beside it: one file is the whole.
        writing.execute("PRAGMA journal_mode=DELETE")
    finally:
        writing.close()


def _verified(path: str) -> list[Shard]:
    return [_verified_shard(path, name) for name in _shards(path)]


def _shards(path: str) -> list[str]:
    db = connect(path, read_only=True, check=partial(check_ours, path=path))
    try:
        return [str(row[0]) for row in db.execute(_SHARDS)]
    except apsw.SQLError:
        return []  # made, and left before its first commit
    finally:
        db.leave()


def _verified_shard(path: str, name: str) -> Shard:
    verdict = Verdict(ok=True, url=path, namespace=name)
    asyncio.run(verify_all(look(path, name), verdict))
    return Shard(name, verdict.last_sequence, verdict.epoch)


# -- restore ------------------------------------------------------------------------------------


def restore(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="What `backup` has written.")],
    url: JournalUrl,
    *,
    json: JsonFlag = False,
) -> None:
    """Put a backup where no journal is. Never over one that was used, nor below what was
    acknowledged there."""
    target = sqlite_path(url)
    if not file.is_file():
        raise Unavailable(f"{file}: there is no such file")
    shards = _verified(str(file))
    lock = OwnerLock(f"{target}-owner")
    lock.take(target)
    try:
        _refuse_used(target)
        _refuse_below_marks(target, shards)
        for name in (target, f"{target}-wal", f"{target}-shm"):
            Path(name).unlink(missing_ok=True)
        with _new_file(Path(target)) as partial_copy:
            _copy(str(file), str(partial_copy), "restoring")
    finally:
        lock.drop()
    _say(shards, f"restored to {target}", json=json)


def _refuse_used(target: str) -> None:
    path = Path(target)
    if not path.exists() or not path.stat().st_size:
        return
    used = _shards(target)
    if used:
        raise CommandFailed(
            f"{target} holds a journal of {', '.join(used)}: move it away first, with the files "
            f"beside it that begin with its name"
        )


def _refuse_below_marks(target: str, shards: list[Shard]) -> None:
    """Work that was acknowledged after the backup would be forgotten, and fences given again."""
    for shard in shards:
        path = mark_path(target, shard.namespace)
        mark = peek(path)
        if mark is not None and mark.last > shard.last_sequence:
            raise CommandFailed(
                f"{shard.namespace} was acknowledged up to {mark.last} here, the backup ends at "
                f"{shard.last_sequence}: if that loss is accepted, remove {path}"
            )


# -- export -------------------------------------------------------------------------------------


def export(
    url: JournalUrl,
    *,
    out: Annotated[Path, typer.Option(metavar="FILE", help="Gets one event a line, as JSON.")],
    start: Annotated[
        int | None, typer.Option("--from", min=1, help="First sequence; else the oldest kept.")
    ] = None,
    namespace: JournalNamespace = "resourcelease",
    json: JsonFlag = False,
) -> None:
    """Write all events up to now to a file, every link of the chain checked."""
    seen = look_at(url, namespace)
    with _new_file(out) as unfinished, unfinished.open("wb") as file:
        count = asyncio.run(_export(seen.reader, start, file))
    if json:
        print_json({"ok": True, "events": count, "file": str(out)})
    else:
        print(f"{counted(count, 'event')} in {out}")


async def _export(reader: SqliteReader, start: int | None, file: BinaryIO) -> int:
    first, head = await reader.first(), await reader.head()
    start = first if start is None else start
    if start < first:
        raise InvalidArgument(f"sequence {start} was pruned: the journal begins at {first}")
    count = 0
    with Progress("exporting", total=max(1, head.last - start + 1)) as bar:
        async for events in tail(reader, reader.shard, start - 1, follow=False):
            for event in events:
                file.write(encode_event(event) + b"\n")
                count += 1
            bar.at(count)
    await reader.close()
    return count
