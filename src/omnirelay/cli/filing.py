"""Files that a command makes: whole and synced, or not there."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from omnirelay.cli.ending import CommandFailed
from omnirelay.stores.backup import sync_folder


@contextmanager
def new_file(path: Path) -> Iterator[Path]:
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
        unfinished.unlink(missing_ok=True)
    sync_folder(path)


def _sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
