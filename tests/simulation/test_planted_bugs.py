"""A suite that stays green proves something only if it turns red for a bug."""

import pytest

from omnirelay.testing import figures
from omnirelay.testing.planted import PLANTS, plant_bug
from omnirelay.testing.world import Report, run_seed, run_seeds

SEEDS_AT_MOST = 400


def first_caught(plant: str) -> Report | None:
    return next((r for r in run_seeds(range(1, SEEDS_AT_MOST + 1), plant) if r.failed), None)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("plant", PLANTS)
def test_a_planted_bug_is_caught(plant: str) -> None:
    report = first_caught(plant)
    figures.record("planted", planted=1, caught=int(report is not None))
    assert report is not None, f"{SEEDS_AT_MOST} seeds did not notice {plant}"
    assert not run_seed(report.plan.seed).failed, "the seed fails without the bug, too"


def test_a_bug_that_nobody_has_written_cannot_be_planted() -> None:
    with pytest.raises(KeyError), plant_bug("none_of_these"):
        pass
