"""Objects as files. Written by hand and not through obstore, whose local files are not synced: here
an object that was created survives a power cut."""

import asyncio
import errno
import itertools
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from omnirelay.journal.backend import Durability
from omnirelay.model.errors import DiskFull, InvalidOption, OutcomeUnknown, Unavailable
from omnirelay.model.ports import failpoint
from omnirelay.stores.file_systems import file_system

_FULL = (errno.ENOSPC, errno.EDQUOT)
_HIDDEN = "."
_LEFT_S = 3600.0
_numbers = itertools.count()


class FileBucket:
    name = "file"

    def __init__(self, folder: str, *, survives: str = "") -> None:
        """`survives` is what the operator says of a file system that does not tell."""
        self.shown = f"file://{folder}"
        self._folder = folder
        self._survives = survives

    def _path(self, key: str) -> str:
        return os.path.join(self._folder, *key.split("/"))

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if error.errno in _FULL:
                raise DiskFull(f"{self.shown}: {error.strerror}; nothing was changed") from error
            raise Unavailable(f"{self.shown}: {error.strerror}") from error

    async def prepare(self, shard: str) -> None:
        await asyncio.to_thread(self._prepare, shard)

    def _prepare(self, shard: str) -> None:
        try:
            _make_folder(self._folder)
            self._sweep(os.path.join(self._folder, shard))
        except OSError as error:
            raise InvalidOption(
                f"{self.shown}: {error.strerror}: name a folder that may be written"
            ) from error
        if not os.access(self._folder, os.W_OK | os.X_OK):
            raise InvalidOption(f"{self.shown}: permission denied: name another folder")

    def _sweep(self, folder: str) -> None:
        """What a killed process left half written; a live one needs its own for a moment only."""
        with suppress(FileNotFoundError), os.scandir(folder) as entries:
            for entry in entries:
                is_left = entry.name.startswith(_HIDDEN)
                if is_left and time.time() - entry.stat().st_mtime > _LEFT_S:
                    os.unlink(entry.path)

    async def create(self, key: str, body: bytes) -> bool:
        return await asyncio.to_thread(self._create, key, body)

    def _create(self, key: str, body: bytes) -> bool:
        path = self._path(key)
        with self._errors():
            aside = self._written(path, body)
        try:
            failpoint("file.before_link")
            os.link(aside, path)
            failpoint("file.after_link")
        except FileExistsError:
            return False
        except OSError as error:
            raise Unavailable(f"{self.shown}: {error.strerror}") from error
        finally:
            with suppress(OSError):
                os.unlink(aside)
        try:
            _sync_folder(os.path.dirname(path))
        except OSError as error:
            raise OutcomeUnknown(f"{self.shown} cannot be synced: {error.strerror}") from error
        return True

    def _written(self, path: str, body: bytes) -> str:
        """The whole body, synced, under a name nobody looks for, in the folder where it belongs."""
        folder, name = os.path.split(path)
        aside = os.path.join(folder, f"{_HIDDEN}{name}.{os.getpid()}.{next(_numbers)}")
        try:
            fd = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        except FileNotFoundError:
            _make_folder(folder)
            fd = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        try:
            with os.fdopen(fd, "wb") as file:
                file.write(body)
                file.flush()
                os.fsync(file.fileno())
        except BaseException:
            with suppress(OSError):
                os.unlink(aside)
            raise
        return aside

    async def put(self, key: str, body: bytes) -> None:
        await asyncio.to_thread(self._put, key, body)

    def _put(self, key: str, body: bytes) -> None:
        path = self._path(key)
        with self._errors():
            aside = self._written(path, body)
            os.replace(aside, path)
            _sync_folder(os.path.dirname(path))

    async def get(self, key: str) -> bytes | None:
        return await asyncio.to_thread(self._get, key)

    def _get(self, key: str) -> bytes | None:
        with self._errors():
            try:
                with open(self._path(key), "rb") as file:
                    return file.read()
            except FileNotFoundError:
                return None

    async def keys(self, prefix: str, after: str = "") -> list[str]:
        return await asyncio.to_thread(self._keys, prefix, after)

    def _keys(self, prefix: str, after: str) -> list[str]:
        found: list[str] = []
        with self._errors():
            for folder, _, names in os.walk(self._path(prefix.rstrip("/"))):
                inside = os.path.relpath(folder, self._folder).replace(os.sep, "/")
                found += [f"{inside}/{name}" for name in names if not name.startswith(_HIDDEN)]
        return sorted(key for key in found if key > after)

    async def delete(self, keys: Sequence[str]) -> None:
        await asyncio.to_thread(self._delete, keys)

    def _delete(self, keys: Sequence[str]) -> None:
        with self._errors():
            for key in keys:
                with suppress(FileNotFoundError):
                    os.unlink(self._path(key))
            # Without a sync some could come back after a power cut; whoever deletes allows for it.

    async def durability(self) -> Durability:
        lies_on = await asyncio.to_thread(file_system, self._folder)
        if self._survives:
            words = f"as the address says of {self._folder}"
            return Durability(True, True, self._survives == "node_loss", words)
        if lies_on.doubt is not None:
            words = f"{lies_on.doubt}: add ?survives=power_loss to the address if you know"
            return Durability(True, False, False, words)
        words = f"file and folder synced on every append, {lies_on.kind}, one disk"
        return Durability(True, True, False, words)


def _make_folder(folder: str) -> None:
    """With every folder above it that is missing, each synced into the one that holds it."""
    if os.path.isdir(folder):
        return
    above = os.path.dirname(folder)
    if above != folder:
        _make_folder(above)
    with suppress(FileExistsError):
        os.mkdir(folder)
        _sync_folder(above)
    if not os.path.isdir(folder):
        raise NotADirectoryError(errno.ENOTDIR, f"{folder} is a file")


def _sync_folder(folder: str) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
