"""A fault at every call of a run, one run each: nothing acknowledged is lost, service returns."""

from dataclasses import replace
from functools import cache

import pytest

from omnirelay.testing import figures
from omnirelay.testing.diskfaults import FaultOutcome, each_fault, run_with_fault
from omnirelay.testing.faultvfs import Fault

_SHARES = 6
"""So that each share of the faults fits into the time one test has."""


@cache
def undisturbed() -> FaultOutcome:
    return run_with_fault(None)


def faults(share: int) -> list[Fault]:
    return [
        fault for at, fault in enumerate(each_fault(undisturbed().calls)) if at % _SHARES == share
    ]


def test_the_run_that_is_disturbed_meets_every_kind_of_call() -> None:
    calls = undisturbed().calls
    assert undisturbed().problems == []
    assert min(calls[kind] for kind in ("write", "sync", "truncate", "open", "delete")) > 0
    assert calls["sync"] >= 20, "too short to checkpoint or to take a snapshot"


@pytest.mark.timeout(60)
@pytest.mark.parametrize("share", range(_SHARES))
def test_a_single_fault_at_any_call_loses_nothing_and_passes(share: int) -> None:
    survive(faults(share))


@pytest.mark.timeout(60)
def test_a_fault_that_stays_is_waited_out() -> None:
    lasting = [replace(fault, lasting=True) for fault in faults(0)]
    survive(lasting[:: 1 + len(lasting) // 30])


def survive(faults: list[Fault]) -> None:
    outcomes = {fault: run_with_fault(fault) for fault in faults}
    struck = [fault for fault, outcome in outcomes.items() if outcome.struck]
    failed = {f: o.problems for f, o in outcomes.items() if o.problems}
    figures.record("disk", injected=len(struck), survived=len(struck) - len(failed))
    assert not failed
    assert len(struck) == len(faults), "a fault was aimed at a call that never came"
