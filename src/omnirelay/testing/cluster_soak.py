"""Troubles a mesh of real nodes over a real PostgreSQL, round after round.

    python -m omnirelay.testing.cluster_soak [--rounds N] [--troubles M] [--only NAME] [--seed S]

A round is three fresh nodes over a fresh schema under traffic, with M troubles drawn by the seed;
then the journal is read and judged. `--only kill_the_owner` measures failovers. A breach is printed
with its round, and makes the exit code 1.
"""

import argparse
import asyncio
import random
import secrets
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from omnirelay.testing.cluster_nemesis import Nemesis
from omnirelay.testing.cluster_nodes import cluster_mesh
from omnirelay.testing.cluster_runs import failovers_ms, suffer
from omnirelay.testing.servers_postgres import PostgresServer, postgres_server

EPOCH_S = 2.0


async def one_round(server: PostgresServer, seed: int, count: int, only: str | None) -> list[float]:
    """Raises AssertionError for a breach. Returns what each kill of an owner cost, in ms."""
    chance = random.Random(seed)
    schema = f"soak_{seed}"

    def journal(places: Sequence[str]) -> str:
        return server.url(schema, place=places[0])

    with (
        tempfile.TemporaryDirectory(prefix="omnirelay-cluster-") as folder,
        cluster_mesh(Path(folder), journal, 3, epoch_s=EPOCH_S, store=[server]) as mesh,
    ):
        await asyncio.to_thread(mesh.start)
        nemesis = Nemesis(mesh, epoch_s=EPOCH_S)
        known = [*nemesis.troubles(), nemesis.restart_one_by_one]
        allowed = [one for one in known if only in (None, one.__name__)]
        troubles = [chance.choice(allowed) for _ in range(count)]
        traffic, read = await suffer(mesh, nemesis, troubles, server.url(schema))
        return failovers_ms(nemesis, traffic, read)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m omnirelay.testing.cluster_soak")
    parser.add_argument("--rounds", type=int, default=0, help="0: until interrupted")
    parser.add_argument("--troubles", type=int, default=6, help="in a round")
    parser.add_argument("--only", help="one kind of trouble, as its method is called")
    parser.add_argument("--seed", type=int, default=None)
    options = parser.parse_args(arguments)
    seed = secrets.randbelow(1 << 30) if options.seed is None else options.seed
    failovers: list[float] = []
    done = 0
    with postgres_server() as server:
        while not options.rounds or done < options.rounds:
            try:
                failovers += asyncio.run(
                    one_round(server, seed + done, options.troubles, options.only)
                )
            except AssertionError as breach:
                print(f"FAILED round of seed {seed + done}: {breach}", flush=True)
                return 1
            except KeyboardInterrupt:
                break
            done += 1
            print(f"{done} rounds, seed {seed + done - 1}; {_in_words(failovers)}", flush=True)
    return 0


def _in_words(failovers: Sequence[float]) -> str:
    if not failovers:
        return "no owner was killed"
    ordered = sorted(failovers)
    middle = ordered[(len(ordered) - 1) // 2]
    return f"{len(ordered)} failovers, p50 {middle:.0f} ms, worst {ordered[-1]:.0f} ms"


if __name__ == "__main__":
    sys.exit(main())
