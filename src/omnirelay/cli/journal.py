"""`omnirelay journal`: read a journal from outside, also while another process writes it."""

import asyncio
from collections import Counter
from typing import Annotated

import msgspec
import typer

from omnirelay.cli.ending import (
    EXIT_FAILED,
    BadAddress,
    JsonFlag,
    complain,
    print_json,
)
from omnirelay.cli.event_words import event_in_words
from omnirelay.cli.progress import Progress
from omnirelay.journal.events import encode_event, event_type
from omnirelay.journal.follower import tail as follow_events
from omnirelay.journal.format import Chain, Envelope
from omnirelay.lease.state import QueueState
from omnirelay.mesh.recovery import replay
from omnirelay.model import limits
from omnirelay.model.errors import Corrupt, InvalidArgument, InvalidOption
from omnirelay.stores.registry import open_address
from omnirelay.stores.sqlite import SqliteJournal
from omnirelay.stores.sqlite_look import Look, look

app = typer.Typer(help="Read, check and copy a journal.", no_args_is_help=True)

JournalUrl = Annotated[
    str, typer.Argument(metavar="URL", help="sqlite:///path of the journal's file.")
]
JournalNamespace = Annotated[
    str, typer.Option(envvar="OMNIRELAY_NAMESPACE", help="Which queue's journal in the file.")
]


class Verdict(msgspec.Struct, rename="camel", omit_defaults=True):
    ok: bool
    url: str
    namespace: str
    first_sequence: int = 0
    last_sequence: int = 0
    envelopes: int = 0
    events: int = 0
    epoch: int = 0
    replayed: bool = False
    """The state was folded from the first record on and agrees with what was recorded."""
    event_types: dict[str, int] = {}
    damaged_at: int | None = None
    message: str | None = None


def sqlite_path(url: str) -> str:
    try:
        journal = open_address(url, "any").journal
    except InvalidOption as error:
        raise BadAddress(error.message) from error
    if not isinstance(journal, SqliteJournal):
        raise BadAddress(f"{url!r} cannot be read from outside: use sqlite:///path")
    return journal.path


def look_at(url: str, namespace: str) -> Look:
    return look(sqlite_path(url), namespace)


# -- verify -------------------------------------------------------------------------------------


@app.command()
def verify(
    url: JournalUrl, *, namespace: JournalNamespace = "resourcelease", json: JsonFlag = False
) -> None:
    """Check every link of the chain, and that the records lead to the depths they recorded."""
    verdict = Verdict(ok=True, url=url, namespace=namespace)
    seen = look_at(url, namespace)
    try:
        asyncio.run(verify_all(seen, verdict))
    except Corrupt as damage:
        verdict.ok, verdict.damaged_at, verdict.message = False, damage.sequence, damage.message
        if not json:
            complain(damage)
    if json:
        print_json(verdict)
    elif verdict.ok:
        print(_in_words(verdict))
    if not verdict.ok:
        raise typer.Exit(EXIT_FAILED)


async def verify_all(seen: Look, verdict: Verdict) -> None:
    reader = seen.reader
    first = await reader.first()
    head = await reader.head()
    chain = Chain(verdict.namespace, first - 1, "" if first == 1 else None)
    # What was pruned cannot be folded; the chain is checked all the same.
    state = QueueState() if first == 1 else None
    verdict.first_sequence, verdict.replayed = first, state is not None
    types: Counter[str] = Counter()
    with Progress("verifying", total=head.last - first + 1) as progress:
        while bodies := await reader.read(chain.last, limits.READ_ENVELOPES_MAX):
            for envelope in chain.accept_all(bodies):
                _count(verdict, types, envelope)
                if state is not None:
                    replay(state, envelope)
            progress.at(verdict.events)
    verdict.event_types = dict(sorted(types.items()))
    await reader.close()
    _check_mark(seen, chain)


def _count(verdict: Verdict, types: "Counter[str]", envelope: Envelope) -> None:
    verdict.envelopes += 1
    verdict.events += len(envelope.records)
    verdict.last_sequence, verdict.epoch = envelope.last, envelope.epoch
    types.update(event_type(record) for record in envelope.records)


def _check_mark(seen: Look, chain: Chain) -> None:
    mark = seen.acknowledged
    if mark is None:
        return
    if chain.last < mark.last:
        why = f"the journal ends at {chain.last} but {mark.last} was acknowledged"
        raise Corrupt(chain.shard, chain.last + 1, why)
    if chain.last == mark.last and chain.link != mark.checksum:
        raise Corrupt(chain.shard, chain.last, "its end is not the one that was acknowledged")


def _in_words(verdict: Verdict) -> str:
    proof = "folded and compared" if verdict.replayed else "chain checked; its beginning was pruned"
    return (
        f"whole: {verdict.events} events in {verdict.envelopes} envelopes, sequences "
        f"{verdict.first_sequence} to {verdict.last_sequence}, epoch {verdict.epoch}; {proof}"
    )


# -- tail ---------------------------------------------------------------------------------------


@app.command()
def tail(
    url: JournalUrl,
    *,
    start: Annotated[
        int | None,
        typer.Option("--from", min=1, help="First sequence to print; else the oldest kept."),
    ] = None,
    follow: Annotated[bool, typer.Option(help="Go on with what is committed from now on.")] = False,
    namespace: JournalNamespace = "resourcelease",
    json: JsonFlag = False,
) -> None:
    """Print committed events in order, one a line, every link of the chain checked."""
    seen = look_at(url, namespace)
    try:
        asyncio.run(_tail(seen, start, follow=follow, json=json))
    except KeyboardInterrupt:
        return  # how a reader that follows is meant to end


async def _tail(seen: Look, start: int | None, *, follow: bool, json: bool) -> None:
    reader = seen.reader
    first = await reader.first()
    start = first if start is None else start
    if start < first:
        raise InvalidArgument(f"sequence {start} was pruned: the journal begins at {first}")
    async for events in follow_events(reader, reader.shard, start - 1, follow=follow):
        for event in events:
            print(encode_event(event).decode() if json else event_in_words(event))
        if follow:
            print(end="", flush=True)
    await reader.close()
