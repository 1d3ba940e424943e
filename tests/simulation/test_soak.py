"""The soak ends when told, says what it did, and turns red for a failure."""

import pytest

from omnirelay.testing import soak
from omnirelay.testing.planted import plant_bug


def test_a_soak_without_failures_ends_with_zero_and_says_what_it_did(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert soak.main(["--minutes", "0.01", "--seed", "1"]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0] == "soaking from seed 1"
    assert "schedules" in said[-1]
    assert said[-1].endswith("0 failed")


def test_a_soak_that_finds_something_prints_its_command_and_ends_with_one(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with plant_bug("reordered_sink"):
        assert soak.main(["--minutes", "0.005", "--seed", "1"]) == 1
    assert "python -m omnirelay.testing.world --seed 1" in capsys.readouterr().out


def test_a_soak_steps_from_schedules_to_meshes_to_power_cuts_to_killed_processes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(soak, "SEEDS_A_ROUND", 2)
    monkeypatch.setattr(soak, "POWER_ROUNDS", 1)
    monkeypatch.setattr(soak, "CRASH_ROUNDS", 1)
    tally = soak.Tally()
    soak.soak(1, lambda: tally.counts["killed processes"] > 0, tally)
    assert tally.failures == []
    assert tally.counts["schedules"] == tally.counts["schedules of a mesh"] == 2
    assert tally.counts["power cuts"] > 0
