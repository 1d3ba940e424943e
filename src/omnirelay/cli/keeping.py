"""`omnirelay journal backup`, `restore`, `migrate` and `export`: a journal copied while it is in
use, put back where none is, moved to another store, and its events as lines."""

import asyncio
from pathlib import Path
from typing import Annotated, BinaryIO

import typer

from omnirelay.cli.carrying import Carried, carry, checked, copied
from omnirelay.cli.ending import CommandFailed, JsonFlag, print_json
from omnirelay.cli.filing import new_file
from omnirelay.cli.journal import JournalNamespace, JournalOrBackup, JournalUrl, start_of
from omnirelay.cli.progress import Progress
from omnirelay.cli.saying import counted
from omnirelay.cli.verifying import addressed
from omnirelay.journal.copying import is_own
from omnirelay.journal.events import encode_event
from omnirelay.journal.follower import tail
from omnirelay.model.errors import Unavailable
from omnirelay.stores.address import masked
from omnirelay.stores.backup import BackupFile
from omnirelay.stores.backup_reading import BackupReader
from omnirelay.stores.outside import Outside, look_outside

# -- backup -------------------------------------------------------------------------------------


def backup(
    url: JournalUrl,
    *,
    out: Annotated[Path, typer.Option(metavar="FILE", help="The copy; must not be there yet.")],
    namespace: JournalNamespace = None,
    json: JsonFlag = False,
) -> None:
    """Write a journal to one file that holds its own checksums, also while a node writes it. Cut
    off, the same command goes on."""
    if out.exists():
        raise CommandFailed(f"{out} is there already: choose another")
    with addressed():
        done = asyncio.run(_backup(url, namespace, out))
    done.say("copied to", json=json)


async def _backup(url: str, namespace: str | None, out: Path) -> Carried:
    seen = await look_outside(url, namespace)
    try:
        return await _write_backup(seen, BackupFile(out, seen.shard))
    finally:
        await seen.close()


async def _write_backup(seen: Outside, file: BackupFile) -> Carried:
    verdict = await checked(seen)
    file.open()
    try:
        copying = await copied(seen, file)
        count = 0
        for known in await seen.checkpoints.readers(seen.shard):
            one = await seen.checkpoints.read(known.name, seen.shard)
            if one is None or one.position > copying.chain.last or is_own(one.name):
                continue
            file.add_position(one)
            count += 1
        file.finish()
    finally:
        file.close()
    ref = await file.snapshot()
    written = BackupReader(file.path)  # every byte is read back and held against the digest
    head = await written.head()
    await written.close()
    return Carried(
        True,
        seen.shard,
        str(file.path),
        verdict.first_sequence,
        head.last,
        head.epoch,
        file.envelopes,
        copying.envelopes,
        0 if ref is None else ref.sequence,
        count,
    )


# -- restore ------------------------------------------------------------------------------------


def restore(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="What `backup` has written.")],
    url: JournalUrl,
    *,
    namespace: JournalNamespace = None,
    json: JsonFlag = False,
) -> None:
    """Put a backup where no journal is, on any store. Never over one that was used, nor below what
    was acknowledged there. Cut off, the same command goes on."""
    if not file.is_file():
        raise Unavailable(f"{file}: there is no such file")
    with addressed():
        done = asyncio.run(_carry(str(file), url, namespace))
    done.say("restored to", json=json)


async def _carry(source: str, target: str, namespace: str | None) -> Carried:
    seen = await look_outside(source, namespace)
    try:
        return await carry(seen, target)
    finally:
        await seen.close()


# -- migrate ------------------------------------------------------------------------------------


def migrate(
    *,
    source: Annotated[
        str, typer.Option("--from", metavar="URL", help="The journal, or the file of a backup.")
    ],
    target: Annotated[
        str,
        typer.Option("--to", metavar="URL", help="Empty, or with a beginning of the same journal."),
    ],
    namespace: JournalNamespace = None,
    json: JsonFlag = False,
) -> None:
    """Copy a journal to another store, byte for byte, with its snapshot and its readers' positions.
    Run it while the node serves, then once more after the node was stopped: only what came
    meanwhile is copied then."""
    with addressed():
        done = asyncio.run(_carry(source, target, namespace))
    done.say(f"{masked(source)} is at", json=json)


# -- export -------------------------------------------------------------------------------------


def export(
    url: JournalOrBackup,
    *,
    out: Annotated[Path, typer.Option(metavar="FILE", help="Gets one event a line, as JSON.")],
    start: Annotated[
        int | None, typer.Option("--from", min=1, help="First sequence; else the oldest kept.")
    ] = None,
    namespace: JournalNamespace = None,
    json: JsonFlag = False,
) -> None:
    """Write all events up to now to a file, every link of the chain checked."""

    async def run(file: BinaryIO) -> int:
        seen = await look_outside(url, namespace)
        try:
            return await _export(seen, start, file)
        finally:
            await seen.close()

    with addressed(), new_file(out) as unfinished, unfinished.open("wb") as file:
        count = asyncio.run(run(file))
    if json:
        print_json({"ok": True, "events": count, "file": str(out)})
    else:
        print(f"{counted(count, 'event')} in {out}")


async def _export(seen: Outside, start: int | None, file: BinaryIO) -> int:
    first, head = await start_of(seen, start), await seen.source.head()
    count = 0
    with Progress("exporting", total=max(1, head.last - first + 1)) as bar:
        async for events in tail(seen.source, seen.shard, first - 1, follow=False):
            for event in events:
                file.write(encode_event(event) + b"\n")
                count += 1
            bar.at(count)
    return count
