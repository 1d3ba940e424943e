"""When a turn waits for company, and when it stops trying."""

from collections.abc import Callable
from itertools import pairwise

from omnirelay.mesh.gathering import LATEST, SOONEST, WINDOW, Gathering


def trials(turns: int, calls_a_turn: Callable[[int], int]) -> list[int]:
    """The turns that were asked to wait, one turn a millisecond; `calls_a_turn` is told how many
    trials there have been."""
    gathering = Gathering()
    found: list[int] = []
    for turn in range(1, turns + 1):
        if gathering.is_wanted(calls_a_turn(len(found)), turn / 1000):
            found.append(turn)
    return found


def test_trials_that_do_not_pay_become_rare() -> None:
    found = trials(20_000, lambda _: 1)
    assert found[0] == SOONEST
    pauses = [later - sooner for sooner, later in pairwise(found)]
    assert pauses[0] > SOONEST
    assert max(pauses) == pauses[-1] == LATEST + WINDOW


def test_one_that_pays_is_soon_repeated() -> None:
    found = trials(3 * (SOONEST + WINDOW), lambda tried: 1 + tried)
    assert found == [SOONEST + number * (SOONEST + WINDOW) for number in range(len(found))]


def test_turns_without_time_between_them_are_no_reason_to_fail() -> None:
    gathering = Gathering()
    assert [gathering.is_wanted(1, 0.0) for _ in range(SOONEST)].count(True) == 1
