"""`python -m bench.wire_peers --peer redis --job batched --json` runs one job in this process,
which has to be that of `.venv-peers`; without `--json` it measures all that is named, in rounds."""

import argparse
import contextlib
import importlib
import signal
import sys
from types import FrameType

from bench.wire_peers import JOBS, PEERS, WIDE, Measured, medians, table
from bench.wire_peers.servers import CannotStart, disk_folder, sync_us

MODULES = {
    "redis": "redis_streams",
    "valkey": "redis_streams",
    "postgres": "skip_locked",
    "beanstalkd": "beanstalk",
    "nats": "jetstream",
    "nats3": "jetstream",
    "celery": "celery_redis",
    "arq": "arq_redis",
}


def one(peer: str, job: str, seconds: float) -> Measured:
    try:
        module = importlib.import_module(f"bench.wire_peers.{MODULES[peer]}")
        with disk_folder() as folder:
            before = sync_us(folder)
            found: Measured = module.run(peer, job, seconds, folder)
            return found._replace(sync_us=round(max(before, sync_us(folder)), 1))
    except CannotStart as reason:
        return Measured(peer, job, error=str(reason))
    except ImportError as reason:
        return Measured(peer, job, error=f"not in this environment: {reason}")


def leave(_signal: int, _frame: FrameType | None) -> None:
    sys.exit(1)  # unwinds the `with` blocks, which stop the server and remove its folder


def main() -> int:
    parser = argparse.ArgumentParser(prog="bench.wire_peers", description=__doc__)
    parser.add_argument("--peer", choices=PEERS, help="all of them if left out")
    parser.add_argument("--job", choices=(*JOBS, WIDE), help="needed with --json")
    parser.add_argument("--seconds", type=float, default=3.0, help="how long each job produces")
    parser.add_argument("--rounds", type=int, default=3, help="rounds whose median counts")
    parser.add_argument("--json", action="store_true", help="one measurement, here, one line")
    arguments = parser.parse_args()
    if arguments.json:
        if arguments.peer is None or arguments.job is None:
            parser.error("--json wants a --peer and a --job")
        signal.signal(signal.SIGTERM, leave)
        print(one(arguments.peer, arguments.job, arguments.seconds).as_json())
        return 0
    peers = PEERS if arguments.peer is None else (arguments.peer,)
    with contextlib.suppress(KeyboardInterrupt):
        print(table(medians(arguments.rounds, arguments.seconds, peers=peers)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
