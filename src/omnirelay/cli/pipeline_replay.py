"""`omnirelay pipeline replay`: a queue as it was, into a file, or beside what is living."""

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from omnirelay.cli.ending import EXIT_FAILED, JsonFlag, print_json
from omnirelay.cli.journal import sqlite_path
from omnirelay.cli.pipeline_places import (
    ArchiveFlag,
    FromFlag,
    MasterFlag,
    ShardsFlag,
    TablesFlag,
    spark_on,
)
from omnirelay.cli.saying import counted
from omnirelay.stores.registry import is_journal

if TYPE_CHECKING:
    from omnirelay.lease.state import QueueState
    from omnirelay.pipeline.replay import Written
    from omnirelay.pipeline.replay_compare import Difference

DIFFERENCES_SHOWN = 20


class ShardState(msgspec.Struct, rename="camel"):
    shard: str
    sequence: int
    at: str
    epoch: int
    pending: int
    active: int
    dead: int


def replay(
    *,
    from_: FromFlag = None,
    tables: TablesFlag = None,
    archive: ArchiveFlag = None,
    shards: ShardsFlag = None,
    shard: Annotated[str | None, typer.Option(help="One of several; else all.")] = None,
    at_sequence: Annotated[
        int | None, typer.Option(min=1, help="As of this sequence; else the newest.")
    ] = None,
    at_time: Annotated[
        str | None, typer.Option(metavar="TIME", help="As of a time, as 2026-01-31T08:00:00Z.")
    ] = None,
    to: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Gets the items, for `omnirelay restore`.")
    ] = None,
    compare: Annotated[
        str | None, typer.Option(metavar="URL", help="A journal or a node to hold it against.")
    ] = None,
    token: Annotated[
        str | None, typer.Option(envvar="OMNIRELAY_TOKEN", help="Bearer token for that node.")
    ] = None,
    master: MasterFlag = "local[*]",
    json: JsonFlag = False,
) -> None:
    """Rebuild a queue as of a sequence or a time."""
    from omnirelay.pipeline.replay import Moment, rebuild, write_files
    from omnirelay.pipeline.replay_events import Place
    from omnirelay.pipeline.shelf import is_bucket

    if to is not None and compare is not None:
        raise typer.BadParameter("write a file or compare, not both")
    place = Place(
        journal=from_, tables=tables, archive=archive, shards=shards or _listed(from_, shard)
    )
    moment = Moment(shard=shard, sequence=at_sequence, time=_time(at_time))
    place.check_lossless()
    # Of an archive in a folder Spark gets to see little more than what is left of it.
    is_folder = archive is not None and not is_bucket(archive)
    with spark_on(master, size="few" if is_folder else "many") as session:
        events = place.foldable(session)
        if to is not None:
            _say_written(write_files(events, moment, to), json=json)
            return
        states = rebuild(events, moment)
    if compare is not None:
        _compare(compare, states, token=token, json=json)
    else:
        _show(states, json=json)


def _listed(url: str | None, shard: str | None) -> str | None:
    """A server must be told what it has: the one shard that is wanted is enough."""
    from omnirelay.pipeline.address import is_store

    return shard if url is not None and is_store(url) else None


def _say_written(written: "list[Written]", *, json: bool) -> None:
    if json:
        print_json(written)
        return
    for one in written:
        said = counted(one.items, "item")
        print(f"{one.shard} at sequence {one.sequence}: {said} in {one.file}")


def _time(text: str | None) -> datetime | None:
    if text is None:
        return None
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is no time; write 2026-01-31T08:00:00Z") from None
    if time.tzinfo is None:
        raise typer.BadParameter(f"{text!r} has no zone; write 2026-01-31T08:00:00Z")
    return time


def _show(states: "dict[str, QueueState]", *, json: bool) -> None:
    from omnirelay.model.items import to_time

    shown = [
        ShardState(
            shard=shard,
            sequence=state.sequence,
            at=to_time(state.at).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            epoch=state.epoch,
            pending=len(state.pending),
            active=len(state.active),
            dead=len(state.dead),
        )
        for shard, state in states.items()
    ]
    if json:
        print_json(shown)
        return
    for one in shown:
        print(
            f"{one.shard} at sequence {one.sequence}, {one.at}, epoch {one.epoch}: "
            f"{one.pending} pending, {counted(one.active, 'active lease')}, "
            f"{counted(one.dead, 'dead letter')}"
        )


def _compare(url: str, states: "dict[str, QueueState]", *, token: str | None, json: bool) -> None:
    from omnirelay.pipeline.replay_compare import Compared, compare_journal, compare_node

    if is_journal(url):
        compared = Compared(compare_journal(sqlite_path(url), states))
    else:
        compared = compare_node(url, states, token=token)
    if json:
        print_json(compared)
    else:
        _say(compared.differences, compared.unseen, states)
    if compared.differences:
        raise typer.Exit(EXIT_FAILED)


def _say(found: "list[Difference]", unseen: int, states: "dict[str, QueueState]") -> None:
    for one in found[:DIFFERENCES_SHOWN]:
        print(f"{one.shard} {one.field}: replayed {one.replayed!r}, live {one.live!r}")
    if len(found) > DIFFERENCES_SHOWN:
        print(f"and {counted(len(found) - DIFFERENCES_SHOWN, 'more difference')}; --json has all")
    if not found:
        at = ", ".join(f"{shard} at sequence {state.sequence}" for shard, state in states.items())
        print(f"equal: {at}")
    if unseen:
        print(f"{counted(unseen, 'item')} were counted but not looked at one by one")
