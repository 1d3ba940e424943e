"""What `omnirelay doctor` looks at: each check is a function from settings to findings."""

import asyncio
import os
import resource
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

import apsw
import msgspec

from omnirelay.cli.saying import clock_time, span
from omnirelay.journal.backend import JournalBackend
from omnirelay.journal.format import Sealed
from omnirelay.mesh.rest import run_now
from omnirelay.model.errors import InvalidArgument, OmniRelayError
from omnirelay.stores.file_systems import file_system
from omnirelay.stores.registry import open_address
from omnirelay.stores.sqlite import SAFE_SQLITE, SqliteJournal
from omnirelay.stores.sqlite_look import look

if TYPE_CHECKING:
    from omnirelay.node.settings import NodeSettings

GOOD: Final = "good"
WARNING: Final = "warning"
BAD: Final = "bad"

FILES_WANTED: Final = 4096
DISK_WANTED_BYTES: Final = 1 << 30
DISK_LEAST_BYTES: Final = 100 << 20
SYNC_SLOW_MS: Final = 20.0
"""A commit costs one sync: beyond this a queue does less than fifty a second for a lone caller."""


class Finding(msgspec.Struct, frozen=True, omit_defaults=True):
    check: str
    verdict: str
    said: str


def check_python() -> Iterator[Finding]:
    found = ".".join(map(str, sys.version_info[:3]))
    good = sys.version_info >= (3, 11)
    yield Finding("python", GOOD if good else BAD, f"{found}; 3.11 or newer is needed")
    for module, extra in (("aiohttp", "http"), ("grpc", "grpc"), ("cryptography", "node")):
        if find_spec(module) is None:
            yield Finding(
                "extras", WARNING, f"{module} is missing: pip install 'omnirelay[{extra}]'"
            )


def check_sqlite() -> Iterator[Finding]:
    is_safe = apsw.SQLITE_VERSION_NUMBER >= SAFE_SQLITE
    why = "" if is_safe else "; before 3.51.3 two connections can corrupt a log they reset at once"
    yield Finding("sqlite", GOOD if is_safe else BAD, f"{apsw.sqlite_lib_version()}{why}")


def check_clock(settings: "NodeSettings") -> Iterator[Finding]:
    """A journal's time never goes back, so a clock behind it was set back, or was ahead before."""
    now_ms = time.time_ns() // 1_000_000
    at = clock_time(datetime.fromtimestamp(now_ms / 1000, UTC))
    behind = 0
    for name, path in sqlite_files(settings):
        try:
            reader = look(str(path), name).reader
            behind = max(behind, run_now(reader.head()).time - now_ms)
            run_now(reader.close())
        except (OmniRelayError, OSError):
            continue  # the check of journals says so
    if behind > 1000:
        yield Finding("clock", WARNING, f"{at} is {span(behind)} behind what the journal has seen")
    else:
        yield Finding("clock", GOOD, at)


# -- journals -----------------------------------------------------------------------------------


def addresses(settings: "NodeSettings") -> Iterator[tuple[str, str]]:
    """Namespace and journal address, as a node opens them."""
    folder = Path(settings.data).absolute()
    for name, own in settings.all_namespaces().items():
        yield name, own.journal or settings.journal or f"sqlite:///{quote(str(folder / name))}.db"
    if settings.hub:  # whichever shards its callers name
        yield "hub", settings.journal or f"sqlite:///{quote(str(folder / 'hub' / 'hub'))}.db"


def sqlite_files(settings: "NodeSettings") -> Iterator[tuple[str, Path]]:
    for name, address in addresses(settings):
        try:
            journal = open_address(address, name).journal
        except OmniRelayError:
            continue
        if isinstance(journal, SqliteJournal) and os.path.exists(journal.path):
            yield name, Path(journal.path)


def check_journals(settings: "NodeSettings") -> Iterator[Finding]:
    for name, address in addresses(settings):
        check = f"journal of {name}"
        try:
            journal = open_address(address, name).journal
            if isinstance(journal, SqliteJournal):
                yield from _check_file(check, name, Path(journal.path))
            else:
                yield asyncio.run(_ask(check, journal))
        except (OmniRelayError, OSError) as error:
            yield Finding(check, BAD, str(error))


async def _ask(check: str, journal: JournalBackend) -> Finding:
    """What the store says of itself; nothing is created."""
    try:
        stated, head = await journal.durability(), await journal.head()
    finally:
        await journal.close()
    level = GOOD if stated.survives_power_loss else WARNING
    return Finding(check, level, f"ends at sequence {head.last}; {stated.in_words()}")


def _check_file(check: str, name: str, path: Path) -> Iterator[Finding]:
    if path.exists():
        try:
            reader = look(str(path), name).reader
            head = run_now(reader.head())
            run_now(reader.close())
            yield Finding(check, GOOD, f"{path}: ends at sequence {head.last}, epoch {head.epoch}")
        except InvalidArgument as error:
            yield Finding(check, BAD, error.message)
    folder = _there(path.parent)
    yield _try_out(check, folder)
    lies_on = file_system(folder)
    if lies_on.is_remote:
        why = "its locks and syncs are not to be trusted with a journal"
        yield Finding(check, BAD, f"{folder} is on {lies_on.kind}: {why}")


def _there(folder: Path) -> Path:
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return folder


def _try_out(check: str, folder: Path) -> Finding:
    """A journal beside the real one, opened as a node opens it, and one commit with its sync."""
    with tempfile.TemporaryDirectory(dir=folder, prefix=".omnirelay-doctor-") as own:
        journal = SqliteJournal(f"{own}/try.db", "try")
        run_now(journal.open())
        try:
            stated = run_now(journal.durability())
            began = time.perf_counter()
            sealed = Sealed("try", 1, 1, 1, 0, "0" * 32, b"{}")
            run_now(journal.append(sealed, expected=0))
            took_ms = (time.perf_counter() - began) * 1000
        finally:
            run_now(journal.close())
    is_good = stated.survives_power_loss and took_ms < SYNC_SLOW_MS
    said = f"{stated.in_words()}; a synced commit took {took_ms:.1f} ms"
    return Finding(check, GOOD if is_good else WARNING, said)


# -- the machine --------------------------------------------------------------------------------


def check_ports(settings: "NodeSettings") -> Iterator[Finding]:
    from omnirelay.node.settings import DOORS, place

    for name in DOORS:
        at = place(name, getattr(settings, name))
        if at is None:
            continue
        if at.path is not None:
            taken = at.path.exists()
            said = f"{at.path} {'is there already' if taken else 'is free'}"
            yield Finding(f"port of {name}", WARNING if taken else GOOD, said)
            continue
        yield _check_port(name, at.host, at.port)


def _check_port(name: str, host: str, port: int) -> Finding:
    check, where = f"port of {name}", f"{host}:{port}"
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as door:
        door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            door.bind((host, port))
        except OSError as error:
            hint = "a node may be running already" if port else ""
            return Finding(check, WARNING, f"{where}: {error.strerror}; {hint}".rstrip("; "))
    return Finding(check, GOOD, f"{where} is free" if port else f"{where} means any free one")


def check_files() -> Iterator[Finding]:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    good = soft == resource.RLIM_INFINITY or soft >= FILES_WANTED
    hint = "" if good else f"; {FILES_WANTED} is better: ulimit -n {FILES_WANTED}"
    shown = "no limit" if soft == resource.RLIM_INFINITY else soft
    yield Finding("open files", GOOD if good else WARNING, f"{shown}: one for each caller{hint}")


def check_disk(settings: "NodeSettings") -> Iterator[Finding]:
    folder = _there(Path(settings.data).absolute())
    free = shutil.disk_usage(folder).free
    verdict = GOOD if free >= DISK_WANTED_BYTES else WARNING if free >= DISK_LEAST_BYTES else BAD
    yield Finding("disk", verdict, f"{free / (1 << 30):.1f} GiB free at {folder}")
