"""The failpoints themselves: read from the source, armed by a line of text."""

import subprocess
import sys
from collections.abc import Iterator

import pytest

from omnirelay.model.errors import DiskFull, OutcomeUnknown
from omnirelay.model.ports import failpoint
from omnirelay.testing.failpoints import (
    VARIABLE,
    Rule,
    arm,
    arm_from_env,
    disarm,
    enumerate_failpoints,
    parse_rules,
)


@pytest.fixture(autouse=True)
def leave_nothing_armed() -> Iterator[None]:
    yield
    disarm()


def test_the_list_is_read_from_the_source_with_the_place_of_each() -> None:
    points = enumerate_failpoints()
    assert points["sqlite.after_commit"].startswith("stores/sqlite.py:")
    assert len(points) >= 10


def test_a_rule_names_a_point_an_action_and_a_hit() -> None:
    spec = "sqlite.after_commit=kill@3, shard.after_reply=delay:5,sqlite.before_commit=raise:eio"
    assert parse_rules(spec) == [
        Rule("sqlite.after_commit", "kill", "", 3),
        Rule("shard.after_reply", "delay", "5", 1),
        Rule("sqlite.before_commit", "raise", "eio", 1),
    ]


@pytest.mark.parametrize(
    "spec",
    [
        "a=explode",
        "a",
        "a=kill:now",
        "a=raise:rarely",
        "a=delay",
        "a=kill@0",
        "a=kill@x",
        "no.such=kill",
    ],
)
def test_a_rule_that_cannot_be_obeyed_is_refused(spec: str) -> None:
    with pytest.raises(ValueError, match="failpoint"):
        arm(spec)


def test_a_point_acts_at_its_hit_and_no_other_time() -> None:
    armed = arm_from_env(
        {VARIABLE: "sqlite.before_commit=raise:enospc@2,sqlite.after_commit=raise:eio"}
    )
    failpoint("sqlite.before_commit")
    with pytest.raises(DiskFull):
        failpoint("sqlite.before_commit")
    failpoint("sqlite.before_commit")
    with pytest.raises(OutcomeUnknown):
        failpoint("sqlite.after_commit")
    assert armed.hits == {"sqlite.before_commit": 3, "sqlite.after_commit": 1}


def test_kill_leaves_no_time_for_anything() -> None:
    program = (
        "import atexit\n"
        "from omnirelay.model.ports import failpoint\n"
        "from omnirelay.testing.failpoints import arm\n"
        "atexit.register(print, 'goodbye')\n"
        "arm('shard.after_reply=kill@2')\n"
        "for number in range(3):\n"
        "    print(number, flush=True)\n"
        "    failpoint('shard.after_reply')\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
    assert (done.returncode, done.stdout) == (-9, b"0\n1\n")


def test_production_code_never_reads_the_variable() -> None:
    program = (
        "import sys, omnirelay\n"
        "from omnirelay.model import ports\n"
        "assert ports._failpoint is None\n"
        "assert 'omnirelay.testing.failpoints' not in sys.modules\n"
    )
    environment = {VARIABLE: "shard.after_reply=kill"}
    done = subprocess.run([sys.executable, "-c", program], env=environment, check=False)
    assert done.returncode == 0
