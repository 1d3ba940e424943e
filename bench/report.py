"""Rows of `bench/results/latest.json`: one list for all benches, rows replaced by name."""

import json
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

LATEST = Path(__file__).parent / "results" / "latest.json"


class Row(NamedTuple):
    """`ratio` is ours to the reference, turned round where less is better; `floor` is the least."""

    bench: str
    metric: str
    ours: float
    reference: float
    reference_name: str
    floor: float | None
    less_is_better: bool = False

    @property
    def ratio(self) -> float:
        return self.reference / self.ours if self.less_is_better else self.ours / self.reference

    def as_json(self) -> dict[str, object]:
        return {
            "bench": self.bench,
            "metric": self.metric,
            "ours": round(self.ours, 3),
            "reference": round(self.reference, 3),
            "referenceName": self.reference_name,
            "ratio": round(self.ratio, 3),
            "floor": self.floor,
            "holds": self.floor is None or self.ratio >= self.floor,
        }


def keep(rows: list[Row]) -> list[dict[str, object]]:
    """Merge the rows into the file."""
    stored = json.loads(LATEST.read_text()) if LATEST.exists() else []
    fresh = [row.as_json() for row in rows]
    names = {(row["bench"], row["metric"]) for row in fresh}
    kept = [row for row in stored if (row["bench"], row["metric"]) not in names]
    merged = sorted([*kept, *fresh], key=lambda row: (str(row["bench"]), str(row["metric"])))
    LATEST.parent.mkdir(exist_ok=True)
    LATEST.write_text("[\n" + ",\n".join("  " + json.dumps(row) for row in merged) + "\n]\n")
    return fresh


def publish(rows: list[Row]) -> bool:
    """Print the rows, merge them into the file, and say whether every floor holds."""
    fresh = keep(rows)
    print(f"\n{'bench / metric':44} {'ours':>12} {'reference':>12} {'ratio':>7} {'floor':>6}")
    for row in fresh:
        floor = "" if row["floor"] is None else f"{row['floor']:g}"
        verdict = "" if row["holds"] else "  BELOW"
        name = f"{row['bench']}/{row['metric']}"
        print(
            f"{name:44} {row['ours']:>12,.0f} {row['reference']:>12,.0f} {row['ratio']:>7.2f} "
            f"{floor:>6}{verdict}   {row['referenceName']}"
        )
    return all(row["holds"] for row in fresh)


def median_of(rounds: int, measure: Callable[[], float]) -> float:
    return statistics.median(measure() for _ in range(rounds))


def percentile(samples: list[float], share: float) -> float:
    ordered = sorted(samples)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]
