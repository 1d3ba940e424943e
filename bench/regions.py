"""`python -m bench.regions [--rounds N]`: a region that serves is killed under load, the one that
stands by over its mirror is promoted at once.

RPO: what producers were told was accepted and is not in the promoted region; how old the oldest of
it was at the kill. RTO: from the kill to the first lease that the promoted region grants.
"""

import argparse
import asyncio
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple
from urllib.request import Request, urlopen

import omnirelay
from omnirelay.testing.servers_nats import nats_servers
from omnirelay.testing.servers_postgres import postgres_server

PRODUCERS = 16
LOAD_S = 3.0


class Outcome(NamedTuple):
    accepted: int
    lost_events: int
    lost_ms: float
    rto_ms: float


@contextmanager
def node(folder: Path, *flags: str) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    folder.mkdir(parents=True)
    ready = folder / "ready.json"
    command = [sys.executable, "-m", "omnirelay.cli", "serve", "--ready-file", str(ready)]
    for door in ("http", "grpc", "stream"):
        command += [f"--{door}", "127.0.0.1:0"]
    process = subprocess.Popen(
        [*command, *flags], cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        until = time.monotonic() + 20
        while not ready.exists():
            assert process.poll() is None, "it ended"
            assert time.monotonic() < until, "it does not start"
            time.sleep(0.01)
        yield process, json.loads(ready.read_text())["http"]
    finally:
        process.kill()
        process.wait()


async def produce(url: str, accepted: dict[str, float]) -> None:
    """Until nobody answers any more."""
    async with omnirelay.connect(url, retry=0) as relay:

        async def one(producer: int) -> None:
            for number in range(1_000_000):
                name = f"{producer}-{number}"
                await relay.enqueue("table", name, body=bytes(200))
                accepted[name] = time.monotonic()

        await asyncio.gather(*(one(n) for n in range(PRODUCERS)), return_exceptions=True)


def promote(url: str) -> None:
    body, kind = b'{"acceptLossEvents":1000000}', {"content-type": "application/json"}
    request = Request(f"{url}/omnirelay/control/region/promote", data=body, headers=kind)
    with urlopen(request, timeout=30) as answer:
        answer.read()


async def first_grant(url: str) -> float:
    async with omnirelay.connect(url) as relay:
        await relay.lease_many(1, wait=20)
        return time.monotonic()


async def present(url: str) -> set[str]:
    async with omnirelay.connect(url) as relay:
        return {
            event.payload.resource_id
            async for event in relay.events(follow=False)
            if event.payload is not None
        }


async def once(folder: Path, journal: str | None, mirror: str) -> Outcome:
    accepted: dict[str, float] = {}
    own = () if journal is None else ("--journal", journal)
    with (
        node(folder / "east", "--mirror", mirror, *own) as (east, east_url),
        node(folder / "west", "--standby", "--journal", mirror) as (_, west_url),
    ):
        producing = asyncio.create_task(produce(east_url, accepted))
        await asyncio.sleep(LOAD_S)
        killed = time.monotonic()
        os.kill(east.pid, signal.SIGKILL)
        await asyncio.to_thread(promote, west_url)
        served = await first_grant(west_url)
        await asyncio.wait_for(producing, 30)
        there = await present(west_url)
    lost = [at for name, at in accepted.items() if name not in there]
    oldest_ms = max([0.0, *((killed - at) * 1000 for at in lost)])
    return Outcome(len(accepted), len(lost), oldest_ms, (served - killed) * 1000)


def main() -> int:
    parser = argparse.ArgumentParser(prog="bench.regions", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    print(
        "| journal → mirror | accepted a second | RPO events, worst | RPO ms | RTO ms, median "
        "| worst |"
    )
    print("|---|---|---|---|---|---|")
    with ExitStack() as stack:
        postgres = stack.enter_context(postgres_server())
        nats = stack.enter_context(nats_servers())
        for name in ("SQLite → PostgreSQL", "SQLite → NATS", "SQLite → files", "PostgreSQL → NATS"):
            found = []
            for number in range(rounds):
                folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="regions-")))
                word = f"{name.lower().replace(' → ', '_')}_{number}"
                target = {
                    "PostgreSQL": postgres.url(f"m_{word}"),
                    "NATS": nats.url(f"M{word.upper()}"),
                    "files": f"file://{folder}/mirror",
                }[name.partition(" → ")[2]]
                journal = postgres.url(f"j_{word}") if name.startswith("PostgreSQL") else None
                found.append(asyncio.run(once(folder, journal, target)))
            show(name, found)
    return 0


def show(name: str, found: list[Outcome]) -> None:
    rto = [one.rto_ms for one in found]
    rate = statistics.median(one.accepted for one in found) / LOAD_S
    print(
        f"| {name} | {rate:,.0f} | {max(one.lost_events for one in found)} "
        f"| {max(one.lost_ms for one in found):,.0f} | {statistics.median(rto):,.0f} "
        f"| {max(rto):,.0f} |",
        flush=True,
    )


if __name__ == "__main__":
    sys.exit(main())
