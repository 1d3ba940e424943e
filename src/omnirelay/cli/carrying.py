"""A journal carried to another place: checked, copied, checked again. Cut off anywhere, the same
command goes on from what the target holds."""

import os
from pathlib import Path

import msgspec

from omnirelay.cli.ending import CommandFailed, print_json
from omnirelay.cli.progress import Progress
from omnirelay.cli.saying import counted
from omnirelay.cli.verifying import Verdict, verify_all
from omnirelay.journal.backend import JournalTarget
from omnirelay.journal.checkpoint import CheckpointStore
from omnirelay.journal.copying import Copy, Fillable, copy_positions, copy_snapshot, meet
from omnirelay.model.errors import Unavailable
from omnirelay.stores.address import masked
from omnirelay.stores.highwater import peek
from omnirelay.stores.outside import Outside, opened_at
from omnirelay.stores.registry import Opened, has_one_owner, sqlite_path
from omnirelay.stores.sqlite import mark_path
from omnirelay.stores.sqlite_look import shards_of


class Carried(msgspec.Struct, rename="camel", omit_defaults=True):
    ok: bool
    namespace: str
    target: str
    first_sequence: int
    last_sequence: int
    epoch: int
    envelopes: int
    envelopes_copied: int
    """The others were there from an earlier run."""
    snapshot_sequence: int = 0
    positions: int = 0

    def in_words(self, done: str) -> str:
        more = [f"{counted(self.envelopes_copied, 'envelope')} copied"]
        if self.snapshot_sequence:
            more.append(f"a snapshot of {self.snapshot_sequence}")
        if self.positions:
            more.append(f"positions of {counted(self.positions, 'reader')}")
        return (
            f"{done} {self.target}: {self.namespace} up to sequence {self.last_sequence}, epoch "
            f"{self.epoch}; {', '.join(more)}; every link was checked"
        )

    def say(self, done: str, *, json: bool) -> None:
        if json:
            print_json(self)
        else:
            print(self.in_words(done))


async def checked(seen: Outside) -> Verdict:
    """Nothing is written anywhere before the source is known to be whole."""
    verdict = Verdict(ok=True, url=seen.shown, namespace=seen.shard)
    await verify_all(seen, verdict, "checking the source")
    return verdict


async def copied(seen: Outside, target: Fillable) -> Copy:
    """All envelopes and the latest snapshot."""
    source = seen.source
    chain = await meet(source, target, seen.shard)
    copying = Copy(source, target, chain)
    begun, head = chain.last, await source.head()
    with Progress("copying", total=max(1, head.last - begun)) as bar:
        while True:
            while await copying.step():
                bar.at(chain.last - begun)
            await copy_snapshot(source, target, chain)
            ref = await source.snapshot()
            if ref is None or ref.sequence <= chain.last:
                return copying
            # Its writer is at work, and has taken one of what was not copied yet.


async def carry(seen: Outside, address: str) -> Carried:
    await checked(seen)
    opened = await open_target(seen, address)
    journal, positions = opened.journal, opened.checkpoints
    try:
        copying = await copied(seen, journal)
        count = await copy_positions(seen.checkpoints, positions, seen.shard, copying.chain.last)
        return await _compared(seen, (journal, positions), masked(address), copying, count)
    finally:
        await positions.close()
        await journal.close()


async def _compared(
    seen: Outside,
    target: tuple[JournalTarget, CheckpointStore],
    shown: str,
    copying: Copy,
    positions: int,
) -> Carried:
    """What the target holds is checked as the source was, and must end where the copy did."""
    journal = target[0]
    verdict = Verdict(ok=True, url=shown, namespace=seen.shard)
    await verify_all(Outside(seen.shard, shown, journal, target[1]), verdict, "checking the target")
    head, chain = await journal.head(), copying.chain
    if (head.last, head.checksum) != (chain.last, chain.link):
        raise CommandFailed(
            f"{shown}: somebody else has written there meanwhile: it ends at {head.last}, what was "
            f"copied ends at {chain.last}"
        )
    ref = await journal.snapshot()
    return Carried(
        True,
        seen.shard,
        shown,
        verdict.first_sequence,
        verdict.last_sequence,
        verdict.epoch,
        verdict.envelopes,
        copying.envelopes,
        0 if ref is None else ref.sequence,
        positions,
    )


async def open_target(seen: Outside, address: str) -> Opened:
    opened = opened_at(address, seen.shard)
    if has_one_owner(address):
        await _settle_mark(seen, sqlite_path(address))
    try:
        await opened.journal.open()
    except BaseException:
        await opened.journal.close()
        raise
    return opened


async def _settle_mark(seen: Outside, path: str) -> None:
    """A file that is gone leaves its mark behind, which says how far it was acknowledged. What
    comes in its place must reach as far: work would be forgotten, and fences given again."""
    marked = mark_path(path, seen.shard)
    mark = peek(marked)
    if mark is None or _holds(path, seen.shard):
        return
    last = (await seen.source.head()).last
    if mark.last > last:
        raise CommandFailed(
            f"{seen.shard} was acknowledged up to {mark.last} here, {seen.shown} ends at {last}: "
            f"if that loss is accepted, remove {marked}"
        )
    os.unlink(marked)


def _holds(path: str, shard: str) -> bool:
    try:
        return Path(path).stat().st_size > 0 and shard in shards_of(path)
    except (FileNotFoundError, Unavailable):
        return False
