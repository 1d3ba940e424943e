"""A finished backup, read as the journal it was taken of."""

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from omnirelay.journal.backend import Head, SnapshotRef
from omnirelay.journal.format import first_of, unseal
from omnirelay.model.errors import Corrupt, InvalidOption, Unavailable
from omnirelay.stores.backup_format import (
    ENVELOPE,
    OPENING,
    VERSION,
    End,
    EndLine,
    Header,
    Part,
    PositionLine,
    SnapshotLine,
    new_digest,
)
from omnirelay.stores.sqlite_file import translate_os

if TYPE_CHECKING:
    from omnirelay.journal.checkpoint import Checkpoint


def is_backup(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(len(OPENING)) == OPENING
    except OSError:
        return False


class BackupReader:
    """Every byte was held against the digest before the first one is believed."""

    blocks = True

    def __init__(self, path: Path) -> None:
        """Raises Unavailable if there is no such file, InvalidOption if it is no backup or a newer
        one, Corrupt if it is not finished or not what was written."""
        self.path = path
        self.positions: list[Checkpoint] = []
        self._parts: dict[tuple[int, int], int] = {}
        self._snapshot: SnapshotRef | None = None
        if not path.is_file():
            raise Unavailable(f"{path}: there is no such file")
        try:
            self._file = path.open("rb")
        except OSError as error:
            raise translate_os(error, str(path)) from error
        header = self._header()
        self.shard, self._first = header.shard, header.first
        self._envelopes_at = self._file.tell()
        self._spot = (self._first - 1, self._envelopes_at)
        """Where the last read ended: the sequence, and the place behind its line."""
        try:
            self._end = self._look_through()
        except BaseException:
            self._file.close()
            raise

    def _header(self) -> Header:
        line = self._file.readline(1 << 16)
        try:
            header = msgspec.json.decode(line, type=Header)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            raise InvalidOption(f"{self.path} is no backup of a journal") from None
        if header.omnirelay != "backup":
            raise InvalidOption(f"{self.path} is no backup of a journal")
        if header.v > VERSION:
            raise InvalidOption(
                f"{self.path} has format version {header.v}, this program knows {VERSION}: "
                f"upgrade it"
            )
        return header

    def _look_through(self) -> End:
        self._file.seek(0)
        digest, lines, at = new_digest(), 0, 0
        for line in self._file:
            if lines and line.startswith(b'{"end":'):
                return self._checked(line, lines, digest.hexdigest())
            if lines and not line.startswith(ENVELOPE):
                self._keep(line, at)
            digest.update(line)
            lines, at = lines + 1, at + len(line)
        why = "the backup was not finished: it has no end"
        raise Corrupt(self.shard, self._first, f"{self.path}: {why}")

    def _checked(self, line: bytes, lines: int, digest: str) -> End:
        end: End = self._decoded(line, EndLine).end
        if (end.lines, end.digest) != (lines, digest):
            why = f"digest is {end.digest} over {end.lines} lines, the file says {digest}, {lines}"
            raise Corrupt(self.shard, self._first, f"{self.path}: {why}")
        return end

    def _keep(self, line: bytes, at: int) -> None:
        if line.startswith(b'{"part":'):
            part: Part = self._decoded(line, Part)
            self._parts[(part.sequence, part.part)] = at
        elif line.startswith(b'{"snapshot":'):
            self._snapshot = self._decoded(line, SnapshotLine).snapshot
        else:
            self.positions.append(self._decoded(line, PositionLine).position)

    def _decoded(self, line: bytes, kind: type[Any]) -> Any:
        """Any: `kind`."""
        try:
            return msgspec.json.decode(line, type=kind)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise Corrupt(self.shard, self._first, f"{self.path}: {error}") from None

    # -- the journal ------------------------------------------------------------------------------

    async def head(self) -> Head:
        end = self._end
        return Head(end.last, end.epoch, end.checksum, end.time)

    async def first(self) -> int:
        return self._first

    async def read(self, after: int, limit: int) -> list[bytes]:
        if after + 1 < self._first:
            why = f"it was pruned; the journal goes on at {self._first}"
            raise Corrupt(self.shard, after + 1, why)
        last, place = self._spot
        if last != after:
            last, place = self._first - 1, self._envelopes_at
        self._file.seek(place)
        found: list[bytes] = []
        while len(found) < limit:
            line = self._file.readline()
            if not line.startswith(ENVELOPE):
                break
            body = line[:-1]
            last = unseal(body, shard=self.shard, at=first_of(body)).last
            place += len(line)
            if last > after:
                found.append(body)
        self._spot = (last, place)
        return found

    async def wait_for_more(self, after: int, timeout_s: float) -> None:
        await asyncio.sleep(timeout_s)  # it grows no more

    async def snapshot(self) -> SnapshotRef | None:
        return self._snapshot

    async def read_part(self, sequence: int, part: int) -> bytes:
        at = self._parts.get((sequence, part))
        if at is None:
            raise Corrupt(self.shard, sequence, f"part {part} of its snapshot is missing")
        self._file.seek(at)
        found: Part = self._decoded(self._file.readline(), Part)
        return found.body

    async def close(self) -> None:
        self._file.close()
