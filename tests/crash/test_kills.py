"""A real process dies at every failpoint and at random moments; what it said must be true."""

from pathlib import Path

import pytest

from omnirelay.testing import figures
from omnirelay.testing.crashes import CrashFigures, CrashSite, crash_rounds
from omnirelay.testing.failpoints import enumerate_failpoints

_HITS = (1, 2, 7)
_STEP_DOWN = "sqlite.before_commit=raise:eio@5"
"""What comes by once a term comes by again after this."""
_ONCE_A_TERM = {"recover.after_snapshot", "shard.before_epoch", "shard.after_epoch"}
_STORES = ("postgres.", "redis.", "nats.", "objects.", "file.", "hub.")
_COPIES = ("copy.", "mirror.", "standby.", "backup.")
_ELSEWHERE = ("pipeline.", "archive.", *_STORES, *_COPIES)
"""Those of the pipeline and of archives are met in tests/spark, those of stores in their suites,
those of copies where journals are moved and mirrored."""
_OF_A_QUEUE = sorted(name for name in enumerate_failpoints() if not name.startswith(_ELSEWHERE))


def note(found: CrashFigures, **points: int) -> None:
    figures.record(
        "crash",
        restarts=found.restarts,
        acknowledged_lost=found.acknowledged_lost,
        recovery_ms=found.recovery_ms,
        **points,
    )


@pytest.mark.timeout(60)
@pytest.mark.parametrize("point", _OF_A_QUEUE)
def test_a_process_killed_at_a_failpoint_loses_nothing_it_acknowledged(
    point: str, tmp_path: Path
) -> None:
    site = CrashSite(tmp_path, seed=1)
    site.kill_at_random()  # so that there is something to recover
    hits = (1, 2) if point in _ONCE_A_TERM else _HITS
    also = _STEP_DOWN if point in _ONCE_A_TERM else ""
    died = [site.kill_at(point, hit, also=also if hit > 1 else "") for hit in hits]
    site.finish()
    note(site.figures, points_enumerated=1, points_hit=len(site.figures.points_hit))
    assert site.figures.problems == []
    assert all(died), f"{point} was passed {died.count(True)} of {len(died)} times"


@pytest.mark.timeout(60)
@pytest.mark.parametrize("seed", range(4))
def test_a_process_killed_at_random_moments_loses_nothing_it_acknowledged(seed: int) -> None:
    found = crash_rounds(seed, 11)
    note(found)
    assert found.problems == []
    assert found.acknowledged_lost == 0
    assert found.acknowledged > 100, "it died before it had anything to lose"
    assert found.repeated > 0, "no answer was ever lost under way"
