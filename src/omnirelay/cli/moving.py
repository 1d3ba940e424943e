"""`omnirelay drain` and `omnirelay restore`: pending items into a file and back.

A drained page is out of the queue, so it is on the disk before the next one is asked for. A page
whose answer got lost is taken from the journal's events; one that cannot be written goes back.
"""

import asyncio
import os
import signal
from collections.abc import Iterator
from contextlib import aclosing, suppress
from pathlib import Path
from typing import Annotated, BinaryIO

import msgspec
import typer

from omnirelay.cli.calling import Caller
from omnirelay.cli.client import Client, calls_a_node
from omnirelay.cli.ending import CommandFailed, print_json
from omnirelay.cli.progress import Progress
from omnirelay.cli.saying import counted
from omnirelay.journal.events import Event, EventItem
from omnirelay.mesh import wire
from omnirelay.model import limits
from omnirelay.model.errors import OmniRelayError, OutcomeUnknown
from omnirelay.model.items import PendingItem, check_payload

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(PendingItem)
BAD_LINES_SHOWN = 5


# -- drain --------------------------------------------------------------------------------------


@calls_a_node
def drain(
    client: Client,
    *,
    out: Annotated[Path, typer.Option(metavar="FILE", help="Gets one item a line, as JSON.")],
    max_items: Annotated[int | None, typer.Option(min=1, help="Stop after so many.")] = None,
    include_active: Annotated[
        bool, typer.Option(help="Leased items too: their holders are fenced out.")
    ] = False,
    include_dead: Annotated[bool, typer.Option(help="Dead letters too.")] = False,
    append: Annotated[bool, typer.Option(help="Go on in a file that is there.")] = False,
    page: Annotated[
        int, typer.Option(min=1, max=limits.BATCH_MAX, help="Items to ask for at once.")
    ] = limits.BATCH_MAX,
) -> None:
    """Take pending items out of the queue, into a file."""
    request = wire.DrainRequest(page, include_active, include_dead)
    with _Pages(out, append=append) as pages:
        left = client.run(lambda caller: _drain(caller, request, max_items, pages))
    if client.json:
        print_json({"drainedCount": pages.count, "remaining": left, "file": str(out)})
        return
    print(f"{counted(pages.count, 'item')} in {out}, {left} left in the queue")


async def _drain(
    caller: Caller, request: wire.DrainRequest, max_items: int | None, pages: "_Pages"
) -> int:
    stopping = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):  # a page under way is out of the queue already
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    before = await caller.ask("stats", wire.StatsRequest(), wire.StatsResponse)
    there = before.stats.pending_count
    with Progress("draining", total=there if max_items is None else min(there, max_items)) as bar:
        while True:
            wanted = request.max_items
            if max_items is not None:
                wanted = min(wanted, max_items - pages.count)
            one = msgspec.structs.replace(request, max_items=wanted)
            answer = await _one_page(caller, one, before.last_sequence)
            await _keep(caller, pages, answer.items)
            bar.at(pages.count)
            if not answer.items or not answer.remaining or pages.count == max_items:
                return answer.remaining
            if stopping.is_set():
                raise CommandFailed(
                    f"stopped: {counted(pages.count, 'item')} in {pages.path}, {answer.remaining} "
                    f"left in the queue; --append goes on"
                )


async def _one_page(caller: Caller, request: wire.DrainRequest, after: int) -> wire.DrainResponse:
    try:
        return await caller.ask("drain", request, wire.DrainResponse, is_repeatable=False)
    except OutcomeUnknown as lost:
        try:
            items = await _drained_since(caller, after)
            stats = await caller.ask("stats", wire.StatsRequest(), wire.StatsResponse)
        except OmniRelayError:
            raise OutcomeUnknown(
                f"{lost.message}; a page may be out of the queue and is not in the file: its "
                f"items are in the journal's DrainSnapshot events after sequence {after}"
            ) from lost
        return wire.DrainResponse(items, stats.stats.pending_count)


async def _drained_since(caller: Caller, after: int) -> tuple[PendingItem, ...]:
    """Every item that any drain took since: one too many in the file does no harm, since a restore
    skips what is in the queue already."""
    found: list[PendingItem] = []
    request = wire.EventsRequest(after + 1, follow=False)
    async with aclosing(caller.stream("events", request, Event)) as events:
        async for event in events:
            if event.event_type == "DrainSnapshot":
                found += map(_item, event.items or ())
    return tuple(found)


def _item(event: EventItem) -> PendingItem:
    assert event.payload is not None
    assert event.attempt is not None
    assert event.enqueued_at is not None
    known = {field: getattr(event, field) for field in PendingItem.__struct_fields__}
    return PendingItem(**known)


async def _keep(caller: Caller, pages: "_Pages", items: tuple[PendingItem, ...]) -> None:
    try:
        pages.add(items)
    except OSError as error:
        pages.cut()
        await caller.ask("restore", wire.RestoreRequest(items), wire.RestoreResponse)
        raise CommandFailed(
            f"{pages.path}: {error.strerror}; the last page went back to the queue, "
            f"{counted(pages.count, 'item')} are in the file"
        ) from error


class _Pages:
    """A file that always ends with a whole page."""

    def __init__(self, path: Path, *, append: bool) -> None:
        self.path = path
        self.count = 0
        if append and path.exists() and path.stat().st_size:
            with path.open("rb") as before:
                before.seek(-1, os.SEEK_END)
                if before.read(1) != b"\n":
                    raise CommandFailed(f"{path} ends in the middle of a line: choose another file")
        try:
            self._file: BinaryIO = path.open("ab" if append else "xb")
        except FileExistsError:
            raise CommandFailed(f"{path} is there already: choose another, or --append") from None
        self._good = self._file.tell()

    def add(self, items: tuple[PendingItem, ...]) -> None:
        self._file.write(b"".join(_encoder.encode(item) + b"\n" for item in items))
        self._file.flush()
        os.fsync(self._file.fileno())
        self._good = self._file.tell()
        self.count += len(items)

    def cut(self) -> None:
        """Back to the last whole page, as far as the file lets itself be cut."""
        with suppress(OSError):
            os.ftruncate(self._file.fileno(), self._good)

    def __enter__(self) -> "_Pages":
        # The file's name must last as its lines do.
        folder = os.open(self.path.absolute().parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
        return self

    def __exit__(self, *error: object) -> None:
        try:
            self._file.close()
        except OSError:
            return  # what could not be written was cut off and said already


# -- restore ------------------------------------------------------------------------------------


@calls_a_node
def restore(
    client: Client,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="What `drain` has written.")],
) -> None:
    """Bring drained items back, here or elsewhere. The same file twice changes nothing."""
    count = _check_file(file)

    async def call(caller: Caller) -> wire.RestoreResponse:
        restored = skipped = 0
        with Progress("restoring", total=count) as bar:
            for items in _batches(file):
                request = wire.RestoreRequest(tuple(items))
                done = await caller.ask("restore", request, wire.RestoreResponse)
                restored += done.restored_count
                skipped += done.skipped_count
                bar.at(restored + skipped)
        return wire.RestoreResponse(restored, skipped)

    done = client.run(call)
    if client.json:
        print_json(done)
    else:
        print(
            f"{counted(done.restored_count, 'item')} restored, {done.skipped_count} were there "
            f"already"
        )


def _check_file(path: Path) -> int:
    """How many items it holds. Every line is looked at before any is sent."""
    bad: list[str] = []
    count = 0
    for number, line in _lines(path):
        try:
            check_payload(_decoder.decode(line).payload)
            count += 1
        except (msgspec.MsgspecError, UnicodeDecodeError, OmniRelayError) as error:
            bad.append(f"line {number}: {error}")
    if bad:
        shown = "; ".join(bad[:BAD_LINES_SHOWN])
        more = f"; and {len(bad) - BAD_LINES_SHOWN} more" if len(bad) > BAD_LINES_SHOWN else ""
        lines = counted(len(bad), "bad line")
        raise CommandFailed(f"{path}: {lines}, nothing was sent: {shown}{more}")
    return count


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            if line.strip():
                yield number, line


def _batches(path: Path) -> Iterator[list[PendingItem]]:
    batch: list[PendingItem] = []
    size = 0
    for _, line in _lines(path):
        if batch and (len(batch) == limits.BATCH_MAX or size + len(line) > limits.PAGE_BYTES_MAX):
            yield batch
            batch, size = [], 0
        batch.append(_decoder.decode(line))
        size += len(line)
    if batch:
        yield batch
