"""`python -m bench [core embedded restart …] [--rounds N]`; without names, the first three."""

import argparse
import sys

from bench import bare, core, embedded, engines, pipeline, restart, wire
from bench.report import publish

BENCHES = {
    "core": core.rows,
    "embedded": embedded.rows,
    "restart": restart.rows,
    "wire": wire.rows,
    "bare": bare.rows,
    "engines": engines.rows,
    "pipeline": pipeline.rows,
}
DEFAULT = ("core", "embedded", "restart")
"""The wire and the engines fetch their peers first: `make bench-peers`, `make bench-engines`. The
pipeline takes most of an hour: `make bench-pipeline`."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="bench", description=__doc__)
    parser.add_argument("names", nargs="*", help=f"any of {', '.join(BENCHES)}")
    parser.add_argument("--rounds", type=int, default=5, help="rounds whose median counts")
    arguments = parser.parse_args()
    unknown = set(arguments.names) - BENCHES.keys()
    if unknown:
        parser.error(f"no such bench: {', '.join(sorted(unknown))}")
    rows = []
    for name in arguments.names or DEFAULT:
        print(f"== {name}")
        rows += BENCHES[name](arguments.rounds)
    return 0 if publish(rows) else 1


if __name__ == "__main__":
    sys.exit(main())
