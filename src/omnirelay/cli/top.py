"""`omnirelay top`: the queues of a node, as they are now, again and again."""

import asyncio
import select
import sys
import termios
import tty
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from typing import Annotated

import msgspec
import typer
from rich.console import Console
from rich.live import Live
from rich.table import Table

from omnirelay.cli.calling import Caller
from omnirelay.cli.client import Client, calls_a_node
from omnirelay.cli.ending import CommandFailed, print_json
from omnirelay.cli.saying import plain, span
from omnirelay.mesh import wire
from omnirelay.model.errors import OmniRelayError

Seen = dict[str, "wire.StatsResponse | OmniRelayError"]


@calls_a_node
def top(
    client: Client,
    *,
    interval: Annotated[float, typer.Option(min=0.1, help="Seconds between looks.")] = 1.0,
    queue: Annotated[
        list[str] | None,
        typer.Option(help="Namespaces to show, in place of --namespace; may come several times."),
    ] = None,
    count: Annotated[int | None, typer.Option(min=1, help="Stop after so many looks.")] = None,
) -> None:
    """Show depths and rates live, until q or Ctrl-C. With --json, one line a look."""
    if not client.json and not sys.stdout.isatty():
        raise CommandFailed("top needs a terminal; elsewhere: top --json, or stats")
    names = queue or [client.settings.namespace]
    try:
        with _keys():
            asyncio.run(_run(client, names, interval, count))
    except KeyboardInterrupt:
        return  # how it is meant to end


async def _run(client: Client, names: list[str], interval: float, count: int | None) -> None:
    async with AsyncExitStack() as stack:
        callers = {}
        for name in names:
            settings = msgspec.structs.replace(client.settings, namespace=name)
            callers[name] = await stack.enter_async_context(Caller(settings))
        looks = _Looks(callers, interval, count)
        await (looks.print_all() if client.json else looks.show_all())


class _Looks:
    def __init__(self, callers: dict[str, Caller], interval: float, count: int | None) -> None:
        self._callers = callers
        self._interval = interval
        self._count = count
        self._last: dict[str, int] = {}

    async def print_all(self) -> None:
        left = self._count
        while left is None or left > 0:
            for name, stats in (await self._look()).items():
                if isinstance(stats, OmniRelayError):
                    raise stats
                print_json({"namespace": name, **msgspec.to_builtins(stats)})
            print(end="", flush=True)
            left = None if left is None else left - 1
            if left != 0:
                await asyncio.sleep(self._interval)

    async def show_all(self) -> None:
        left = self._count
        with Live(console=Console(markup=False), auto_refresh=False) as live:
            while left is None or left > 0:
                live.update(self._table(await self._look()), refresh=True)
                left = None if left is None else left - 1
                if left == 0 or await asyncio.to_thread(_is_ended, self._interval):
                    break

    async def _look(self) -> Seen:
        names = list(self._callers)
        found = await asyncio.gather(*(self._ask(name) for name in names))
        return dict(zip(names, found, strict=True))

    async def _ask(self, name: str) -> wire.StatsResponse | OmniRelayError:
        try:
            return await self._callers[name].ask("stats", wire.StatsRequest(), wire.StatsResponse)
        except OmniRelayError as error:
            return error  # shown in its row: a node that restarts is worth watching

    def _table(self, seen: Seen) -> Table:
        columns = ("queue", "pending", "leased", "delayed", "dead", "oldest", "events/s", "leader")
        table = Table(*columns, box=None, header_style="bold", pad_edge=False)
        for name, stats in seen.items():
            table.add_row(*self._row(name, stats))
        table.caption = "q ends"
        return table

    def _row(self, name: str, stats: "wire.StatsResponse | OmniRelayError") -> list[str]:
        if isinstance(stats, OmniRelayError):
            self._last.pop(name, None)
            return [name, plain(stats.message)]
        before = self._last.get(name)
        self._last[name] = stats.last_sequence
        rate = "-" if before is None else f"{(stats.last_sequence - before) / self._interval:.0f}"
        oldest = stats.oldest_pending_age_ms
        paused = " (paused)" if stats.backpressure else ""
        return [
            name,
            f"{stats.stats.pending_count}{paused}",
            str(stats.stats.active_lease_count),
            str(stats.delayed_count),
            str(stats.dead_letter_count),
            "-" if oldest is None else span(oldest),
            rate,
            f"{plain(stats.leader)}, epoch {stats.epoch}",
        ]


@contextmanager
def _keys() -> Iterator[None]:
    """Keys arrive one by one and unseen, as long as this lasts."""
    if not sys.stdin.isatty():
        yield
        return
    before = termios.tcgetattr(sys.stdin)
    tty.setcbreak(sys.stdin)
    try:
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


def _is_ended(seconds: float) -> bool:
    """Waits; true as soon as q is pressed."""
    if not sys.stdin.isatty():
        select.select([], [], [], seconds)
        return False
    ready, _, _ = select.select([sys.stdin], [], [], seconds)
    return bool(ready) and sys.stdin.read(1) in ("q", "Q", "\x1b", "")
