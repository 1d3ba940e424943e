"""What the reliability suites counted in this run, one line of JSON each, printed as one table.

A suite calls `record` as often as it likes; lines of one suite are added up. `reports/` can be
moved with OMNIRELAY_REPORTS. A run starts with `python -m omnirelay.testing.figures --clear` and
ends with the same command without the flag.

    suite        figures
    exhaustive   states, transitions, depth (the greatest counts), violations
    simulation   schedules, virtual_hours, failing_seeds, faults (a number, or numbers by kind)
    ownership    schedules, virtual_hours, epochs, faults by kind, items_lost, doubled,
                 stale_accepted, split_brains, failing_seeds (of a simulated mesh)
    model        machines, steps, bugs
    crash        points_hit, points_enumerated, restarts, acknowledged_lost, recovery_ms [..]
    power        cuts, acknowledged_lost, corrupt_served
    disk         injected, survived
    cluster      actions, operations, unknown, items_lost, stale_accepted, failover_ms [..]
    inputs       tried, server_errors, wrongly_accepted
    identity     cases, server_errors, wrongly_accepted, secrets_found
    planted      caught, planted
    effects      ids, run_twice

Numbers are added, lists joined, mappings added key by key. A list where a number belongs counts
its entries, so `failing_seeds=[7, 42]` names the seeds in the file and prints 2. Other suites may
record too; their sums are printed below the table. What nobody recorded is printed "not run".
"""

import argparse
import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

Figure = int | float | list[int] | list[float] | Mapping[str, int | float]
Totals = dict[str, dict[str, object]]

NOT_RUN = "not run"
_GREATEST = {"depth"}
# Label, then (suite, figure, caption) cells; the first caption is empty because the label is it.
_ROWS: tuple[tuple[str, tuple[tuple[str, str, str], ...]], ...] = (
    (
        "states explored (exhaustive)",
        (
            ("exhaustive", "states", ""),
            ("exhaustive", "transitions", "transitions"),
            ("exhaustive", "depth", "depth"),
            ("exhaustive", "violations", "violations"),
        ),
    ),
    (
        "schedules explored",
        (
            ("simulation", "schedules", ""),
            ("simulation", "virtual_hours", "virtual hours"),
            ("simulation", "faults", "faults"),
            ("simulation", "failing_seeds", "failing seeds"),
        ),
    ),
    (
        "schedules of a mesh",
        (
            ("ownership", "schedules", ""),
            ("ownership", "virtual_hours", "virtual hours"),
            ("ownership", "epochs", "epochs"),
            ("ownership", "items_lost", "items lost"),
            ("ownership", "doubled", "doubled"),
            ("ownership", "stale_accepted", "stale completions accepted"),
            ("ownership", "split_brains", "split brains"),
            ("ownership", "failing_seeds", "failing seeds"),
            ("ownership", "faults", "faults"),
        ),
    ),
    (
        "model steps",
        (("model", "steps", ""), ("model", "machines", "machines"), ("model", "bugs", "bugs")),
    ),
    (
        "crash points hit / enumerated",
        (
            ("crash", "points_hit/points_enumerated", ""),
            ("crash", "restarts", "restarts"),
            ("crash", "acknowledged_lost", "acknowledged lost"),
        ),
    ),
    (
        "power cuts",
        (
            ("power", "cuts", ""),
            ("power", "acknowledged_lost", "acknowledged lost"),
            ("power", "corrupt_served", "corrupt served"),
        ),
    ),
    ("disk faults injected / survived", (("disk", "injected/survived", ""),)),
    (
        "cluster actions",
        (
            ("cluster", "actions", ""),
            ("cluster", "operations", "operations"),
            ("cluster", "unknown", "unknown"),
            ("cluster", "items_lost", "items lost"),
            ("cluster", "stale_accepted", "stale completions accepted"),
        ),
    ),
    (
        "bad inputs tried",
        (
            ("inputs", "tried", ""),
            ("inputs", "server_errors", "5xx"),
            ("inputs", "wrongly_accepted", "wrongly accepted"),
        ),
    ),
    (
        "identity cases tried",
        (
            ("identity", "cases", ""),
            ("identity", "server_errors", "5xx"),
            ("identity", "wrongly_accepted", "wrongly accepted"),
            ("identity", "secrets_found", "secrets found"),
        ),
    ),
    ("planted bugs caught", (("planted", "caught/planted", ""),)),
    ("effects run twice under one id", (("effects", "run_twice", ""), ("effects", "ids", "ids"))),
)


def reports_path() -> Path:
    return Path(os.environ.get("OMNIRELAY_REPORTS") or "reports") / "reliability.jsonl"


def record(suite: str, **figures: Figure) -> None:
    """Add one line for `suite`. Safe when several test processes record at the same time.

    Raises ValueError or TypeError for what the table could not add up, before anything is written.
    """
    if not suite or not figures:
        raise ValueError(f"a line needs a suite and at least one figure: {suite!r}, {figures}")
    _add({}, suite, figures)
    line = json.dumps({"suite": suite, **figures}, sort_keys=True, allow_nan=False) + "\n"
    path = reports_path()
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        # One write with O_APPEND: the kernel places each line whole, behind what others wrote.
        written = os.write(descriptor, line.encode())
        if written != len(line.encode()):
            raise OSError(f"only {written} bytes of a line reached {path}")
    finally:
        os.close(descriptor)


def read_totals(lines: Sequence[str]) -> Totals:
    """Sums by suite and figure. Raises ValueError naming the line that cannot be read."""
    totals: Totals = {}
    for number, line in enumerate(lines, start=1):
        try:
            entry = json.loads(line)
            suite = entry.pop("suite")
            _add(totals, suite, entry)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise ValueError(f"line {number} is not a record of figures: {error!r}") from error
    return totals


def _add(totals: Totals, suite: str, figures: Mapping[str, object]) -> None:
    sums = totals.setdefault(suite, {})
    for name, value in figures.items():
        sums[name] = _sum(name, sums.get(name), value)


def _sum(name: str, before: object, value: object) -> object:
    match before, value:
        case _, bool() | str() | None:
            raise TypeError(f"{name} is not a figure: {value!r}")
        case None, int() | float() | list():
            return value
        case None, Mapping():
            return {key: _sum(key, None, part) for key, part in value.items()}
        case int() | float(), int() | float():
            return max(before, value) if name in _GREATEST else before + value
        case list(), list():
            return before + value
        case list(), int():
            return len(before) + value
        case int(), list():
            return before + len(value)
        case Mapping(), Mapping():
            keys = sorted({*before, *value})
            return {key: _sum(key, before.get(key, 0), value.get(key, 0)) for key in keys}
    raise TypeError(f"{name}: cannot add {value!r} to {before!r}")


def table(totals: Totals) -> str:
    rows = [(label, list(_cells(totals, cells))) for label, cells in _ROWS]
    rows.append(("recovery", _times(totals, "crash", "recovery_ms")))
    rows.append(("failover", _times(totals, "cluster", "failover_ms")))
    known = {suite for _, cells in _ROWS for suite, _, _ in cells}
    for suite in sorted(totals.keys() - known):
        others = [f"{name} {_text(value)}" for name, value in totals[suite].items()]
        rows.append((suite, others))
    label_width = max(len(label) for label, _ in rows)
    return "\n".join(f"{label:<{label_width}}  {'   '.join(cells)}" for label, cells in rows)


def _cells(totals: Totals, cells: tuple[tuple[str, str, str], ...]) -> Iterator[str]:
    if cells[0][0] not in totals:
        yield NOT_RUN
        return
    for suite, names, caption in cells:
        text = "/".join(_text(totals[suite].get(name)) for name in names.split("/"))
        yield f"{caption} {text}".strip()


def _text(value: object) -> str:
    match value:
        case None:
            return NOT_RUN
        case list():
            return f"{len(value):,}"
        case Mapping():
            parts = ", ".join(f"{key} {_text(part)}" for key, part in sorted(value.items()))
            return f"{_text(sum(value.values()))} ({parts})" if parts else "0"
        case float():
            return f"{value:,.1f}"
        case _:
            return f"{value:,}"


def _times(totals: Totals, suite: str, name: str) -> list[str]:
    times = totals.get(suite, {}).get(name)
    if not isinstance(times, list) or not times:
        return [NOT_RUN]
    ordered = sorted(times)
    middle = ordered[(len(ordered) - 1) // 2]
    return [f"p50 {middle / 1000:.3f} s", f"max {ordered[-1] / 1000:.3f} s"]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m omnirelay.testing.figures", description="Print what this run counted."
    )
    parser.add_argument("--clear", action="store_true", help="forget the last run, print nothing")
    options = parser.parse_args(arguments)
    path = reports_path()
    if options.clear:
        path.unlink(missing_ok=True)
        return 0
    lines = path.read_text().splitlines() if path.exists() else []
    try:
        print(table(read_totals(lines)))
    except ValueError as error:
        print(f"{path}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
