"""`docs/benchmarks.md` from `bench/results/latest.json`: figures are copied by a program, not by
hand. `python -m bench.page`, after the benches."""

import json
import os
import platform
from pathlib import Path

from bench.report import LATEST

PAGE = Path(__file__).parent.parent / "docs" / "benchmarks.md"
TITLES = {
    "core": ("The core by itself", "make bench"),
    "embedded": ("Embedded, every answer synced", "make bench"),
    "restart": ("Restart", "make bench"),
    "wire": ("A node and its peers, one server and one client process", "make bench-peers"),
    "bare": ("What a bare node reaches beside the same peers", "make bench-peers"),
    "engines": ("Journals on engines, and nodes that take over", "make bench-engines"),
    "pipeline": ("The pipeline", "make bench-pipeline"),
}
HEAD = "| what | ours | beside | ratio | at least | |\n|---|---|---|---|---|---|\n"
INTRO = """# Benchmarks

Written by `python -m bench.page` from `bench/results/latest.json`. Machine: {machine}.

Ratios of one run on one machine are worth more than any figure: the disk of a virtual machine
drifts by a factor of two within minutes. "ratio" is ours to theirs, turned round where less is
better, so more is always better.

![items a second, ours and peers](benchmarks.svg)
"""


def main() -> None:
    rows = json.loads(LATEST.read_text())
    parts = [INTRO.format(machine=_machine())]
    for bench, (title, command) in TITLES.items():
        mine = [row for row in rows if row["bench"] == bench]
        if mine:
            parts.append(f"## {title}\n\n`{command}`\n\n{HEAD}" + "".join(map(_row, mine)))
    limits = Path(__file__).with_name("limits.md")
    parts.append(limits.read_text())
    PAGE.write_text("\n".join(parts))


def _machine() -> str:
    cores = os.cpu_count()
    system = f"{platform.system()} on {platform.machine()}"
    return f"{cores} virtual cores, {system}, CPython {platform.python_version()}"


def _row(row: dict[str, object]) -> str:
    floor = row["floor"]
    wanted = "" if floor is None else f"{floor:.2f}"
    verdict = "" if floor is None else ("holds" if row["holds"] else "**below**")
    metric = str(row["metric"]).replace("_", " ")
    return (
        f"| {metric} | {_number(row['ours'])} | {_number(row['reference'])} "
        f"({row['referenceName']}) | {row['ratio']:.2f} | {wanted} | {verdict} |\n"
    )


def _number(figure: object) -> str:
    assert isinstance(figure, int | float)
    return f"{figure:,.0f}" if abs(figure) >= 100 else f"{figure:,.2f}"


if __name__ == "__main__":
    main()
