"""`omnirelay journal`: read a journal from outside, also while another process writes it."""

import asyncio
from typing import Annotated

import typer

from omnirelay.cli.ending import EXIT_FAILED, BadAddress, JsonFlag, complain, print_json
from omnirelay.cli.event_words import event_in_words
from omnirelay.cli.verifying import Verdict, addressed, in_words, verify_all
from omnirelay.journal.events import encode_event
from omnirelay.journal.follower import tail as follow_events
from omnirelay.model.errors import Corrupt, InvalidArgument, InvalidOption
from omnirelay.stores.address import masked
from omnirelay.stores.outside import Outside, look_outside
from omnirelay.stores.registry import open_address
from omnirelay.stores.sqlite import SqliteJournal

app = typer.Typer(help="Read, check, copy and move a journal.", no_args_is_help=True)

JournalUrl = Annotated[
    str, typer.Argument(metavar="URL", help="The journal's address, such as sqlite:///path.")
]
JournalOrBackup = Annotated[
    str, typer.Argument(metavar="URL", help="The journal's address, or the file of a backup.")
]
JournalNamespace = Annotated[
    str | None,
    typer.Option(
        envvar="OMNIRELAY_NAMESPACE",
        help="Which queue's journal. [default: the only one in a file, else resourcelease]",
        show_default=False,
    ),
]


def sqlite_path(url: str) -> str:
    try:
        journal = open_address(url, "any").journal
    except InvalidOption as error:
        raise BadAddress(error.message) from error
    if not isinstance(journal, SqliteJournal):
        raise BadAddress(f"{masked(url)!r} cannot be read from outside: use sqlite:///path")
    return journal.path


# -- verify -------------------------------------------------------------------------------------


@app.command()
def verify(
    url: JournalOrBackup, *, namespace: JournalNamespace = None, json: JsonFlag = False
) -> None:
    """Check every link of the chain, and that the records lead to the depths they recorded."""
    verdict = Verdict(ok=True, url=masked(url), namespace=namespace or "")
    try:
        with addressed():
            asyncio.run(_verify(url, namespace, verdict))
    except Corrupt as damage:
        verdict.ok, verdict.damaged_at, verdict.message = False, damage.sequence, damage.message
        if not json:
            complain(damage)
    if json:
        print_json(verdict)
    elif verdict.ok:
        print(in_words(verdict))
    if not verdict.ok:
        raise typer.Exit(EXIT_FAILED)


async def _verify(url: str, namespace: str | None, verdict: Verdict) -> None:
    seen = await look_outside(url, namespace)
    verdict.namespace = seen.shard
    try:
        await verify_all(seen, verdict)
    finally:
        await seen.close()


# -- tail ---------------------------------------------------------------------------------------


@app.command()
def tail(
    url: JournalOrBackup,
    *,
    start: Annotated[
        int | None,
        typer.Option("--from", min=1, help="First sequence to print; else the oldest kept."),
    ] = None,
    follow: Annotated[bool, typer.Option(help="Go on with what is committed from now on.")] = False,
    namespace: JournalNamespace = None,
    json: JsonFlag = False,
) -> None:
    """Print committed events in order, one a line, every link of the chain checked."""

    async def show() -> None:
        seen = await look_outside(url, namespace)
        try:
            await _tail(seen, start, follow=follow, json=json)
        finally:
            await seen.close()

    try:
        with addressed():
            asyncio.run(show())
    except KeyboardInterrupt:
        return  # how a reader that follows is meant to end


async def _tail(seen: Outside, start: int | None, *, follow: bool, json: bool) -> None:
    after = await start_of(seen, start) - 1
    async for events in follow_events(seen.source, seen.shard, after, follow=follow):
        for event in events:
            print(encode_event(event).decode() if json else event_in_words(event))
        if follow:
            print(end="", flush=True)


async def start_of(seen: Outside, start: int | None) -> int:
    first = await seen.source.first()
    start = first if start is None else start
    if start < first:
        raise InvalidArgument(f"sequence {start} was pruned: the journal begins at {first}")
    return start
