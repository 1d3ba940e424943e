"""A backup's file while it is written: a target that a journal is copied into.

It grows under the name `FILE.unfinished` and gets its own when it is whole and synced. One that was
cut off goes on after its last whole envelope.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

import msgspec

from omnirelay.journal.backend import Head, SnapshotRef
from omnirelay.journal.checkpoint import Checkpoint
from omnirelay.journal.format import Chain, Sealed, first_of
from omnirelay.model.errors import Corrupt, InvalidOption, SequenceTaken
from omnirelay.model.ports import failpoint
from omnirelay.stores.backup_format import (
    ENVELOPE,
    VERSION,
    End,
    EndLine,
    Header,
    Part,
    PositionLine,
    SnapshotLine,
    line_of,
    new_digest,
)
from omnirelay.stores.sqlite_file import translate_os


class BackupFile:
    def __init__(self, path: Path, shard: str) -> None:
        self.path = path
        self.shard = shard
        self.unfinished = path.with_name(f"{path.name}.unfinished")
        self._head = Head()
        self._snapshot: SnapshotRef | None = None
        self._digest = new_digest()
        self._lines = 0
        self.envelopes = 0
        self._file: BinaryIO | None = None

    def open(self) -> None:
        """Raises InvalidOption if the file is there already, or cannot be made."""
        if self.path.exists():
            raise InvalidOption(f"{self.path} is there already: choose another")
        try:
            self._file = self.unfinished.open("r+b" if self.unfinished.exists() else "x+b")
            self._go_on()
        except OSError as error:
            raise translate_os(error, str(self.path)) from error

    def _go_on(self) -> None:
        """Keep what is whole of an earlier run: its header and its envelopes, checked as a chain.
        What came behind them is copied again."""
        assert self._file is not None
        good = 0
        for line in self._file:
            if not line.endswith(b"\n") or not self._takes(line):
                break
            good += len(line)
            self._note(line)
        self._file.seek(good)
        self._file.truncate(good)

    def _takes(self, line: bytes) -> bool:
        if not self._lines:
            try:
                header = msgspec.json.decode(line, type=Header)
            except msgspec.MsgspecError:
                return False
            return (header.v, header.shard) == (VERSION, self.shard)
        if not line.startswith(ENVELOPE):
            return False
        head, body = self._head, line[:-1]
        known = head.last > 0
        chain = Chain(self.shard, head.last or first_of(body) - 1, head.checksum if known else None)
        try:
            envelope = chain.accept(body)
        except Corrupt:
            return False
        self._head = Head(envelope.last, envelope.epoch, envelope.checksum, envelope.time)
        self.envelopes += 1
        return True

    def _note(self, line: bytes) -> None:
        self._digest.update(line)
        self._lines += 1

    def _write(self, line: bytes) -> None:
        assert self._file is not None, "the backup is not open"
        try:
            self._file.write(line)
        except OSError as error:
            raise translate_os(error, str(self.unfinished)) from error
        self._note(line)

    # -- being filled -----------------------------------------------------------------------------

    async def head(self) -> Head:
        return self._head

    async def begin(self, sealed: Sealed) -> None:
        if self._head.last:
            raise SequenceTaken(self.shard, 0, self._head.last)
        if not self._lines:
            self._write(line_of(Header("backup", VERSION, self.shard, sealed.first)))
        self._put(sealed)

    async def append(self, sealed: Sealed, *, expected: int) -> None:
        if self._head.last != expected:
            raise SequenceTaken(self.shard, expected, self._head.last)
        if not expected:
            return await self.begin(sealed)
        return self._put(sealed)

    async def extend(self, envelopes: Sequence[Sealed], *, expected: int) -> None:
        for sealed in envelopes:
            await self.append(sealed, expected=expected)
            expected = sealed.last

    def _put(self, sealed: Sealed) -> None:
        self._write(sealed.body + b"\n")
        self._head = Head(sealed.last, sealed.epoch, sealed.checksum, sealed.time)
        self.envelopes += 1

    async def snapshot(self) -> SnapshotRef | None:
        return self._snapshot

    async def write_part(self, sequence: int, part: int, body: bytes) -> None:
        self._write(line_of(Part(part, sequence, body)))

    async def finish_snapshot(self, ref: SnapshotRef) -> None:
        self._write(line_of(SnapshotLine(ref)))
        self._snapshot = ref

    def add_position(self, checkpoint: Checkpoint) -> None:
        self._write(line_of(PositionLine(checkpoint)))

    def finish(self) -> None:
        """Whole, synced and under its own name; never over another file."""
        assert self._file is not None, "the backup is not open"
        head = self._head
        end = End(
            head.last, head.epoch, head.checksum, head.time, self._lines, self._digest.hexdigest()
        )
        try:
            self._file.write(line_of(EndLine(end)))
            self._file.flush()
            os.fsync(self._file.fileno())
            failpoint("backup.before_name")
            # Unlike a rename, it refuses a file that came meanwhile.
            os.link(self.unfinished, self.path)
            self.unfinished.unlink()
            sync_folder(self.path)
        except FileExistsError:
            raise InvalidOption(f"{self.path} is there already: choose another") from None
        except OSError as error:
            raise translate_os(error, str(self.path)) from error

    def close(self) -> None:
        file, self._file = self._file, None
        if file is None:
            return
        try:
            file.close()
        except OSError:
            return  # what it could not write was said already


def sync_folder(path: Path) -> None:
    """A file's name must last as its bytes do."""
    folder = os.open(path.absolute().parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
