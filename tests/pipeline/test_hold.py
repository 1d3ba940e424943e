"""One pipeline at a time on a target: the second is told who has it, a late one is refused."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from threading import Timer

import pytest

import omnirelay
from omnirelay.model.errors import InvalidOption
from omnirelay.pipeline.hold import Hold, HoldLost, PipelineHeld, resource_type

_KEEP = """
import sys
from omnirelay.pipeline.hold import Hold
with Hold(sys.argv[1]) as hold:
    print(hold.fence, flush=True)
    sys.stdin.readline()
"""


def holder(target: Path) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", _KEEP, str(target)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert int(process.stdout.readline()) > 0
    return process


def closed(process: subprocess.Popen[str]) -> None:
    process.wait()
    for pipe in (process.stdin, process.stdout):
        assert pipe is not None
        pipe.close()


def test_every_pipeline_has_a_higher_fence_than_the_one_before(tmp_path: Path) -> None:
    fences = []
    for _ in range(3):
        with Hold(str(tmp_path)) as hold:
            hold.check()
            fences.append(hold.fence)
    assert fences == sorted(set(fences))


def test_the_second_of_two_processes_is_told_who_has_the_target(tmp_path: Path) -> None:
    first = holder(tmp_path)
    try:
        with pytest.raises(PipelineHeld, match=f"worked on by process {first.pid}"):
            Hold(str(tmp_path)).__enter__()
    finally:
        first.communicate("go\n")
    with Hold(str(tmp_path)) as hold:
        hold.check()


def test_a_pipeline_that_may_wait_goes_on_when_the_other_is_done(tmp_path: Path) -> None:
    first = holder(tmp_path)
    Timer(0.3, lambda: os.kill(first.pid, signal.SIGTERM)).start()
    with Hold(str(tmp_path), wait_s=15) as hold:
        hold.check()
    closed(first)


def test_a_pipeline_that_was_killed_holds_nobody_up(tmp_path: Path) -> None:
    first = holder(tmp_path)
    os.kill(first.pid, signal.SIGKILL)
    closed(first)
    with Hold(str(tmp_path), wait_s=0) as hold:
        hold.check()
        assert hold.fence > 1


def test_a_lease_whose_time_ran_out_is_lost_before_anybody_says_so(tmp_path: Path) -> None:
    with Hold(str(tmp_path)) as hold:
        lease = hold._lease
        assert lease is not None
        lease.lease.renewed_at_ms -= lease.lease.lease_ms
        with pytest.raises(HoldLost, match="its time ran out"):
            hold.check()


def test_a_target_that_is_no_folder_needs_a_mesh_for_its_lease() -> None:
    with pytest.raises(InvalidOption, match="name a mesh"):
        Hold("s3://bucket/lake")


def test_a_very_long_target_still_has_a_name_of_its_own() -> None:
    one, other = resource_type("/" + "a" * 5000), resource_type("/" + "a" * 4999)
    assert len(one) < 200
    assert one != other


def test_a_lease_of_a_mesh_names_its_holder_and_passes_on(tmp_path: Path) -> None:
    """An embedded queue stands in for the node: it is the same relay behind the same calls."""
    target = str(tmp_path / "lake")
    with omnirelay.connect_sync("memory:", peer_id="one") as relay:
        first = Hold(target, url="unused://")._taken(relay)
        with pytest.raises(PipelineHeld, match="worked on by one, whose lease runs until"):
            Hold(target, url="unused://")._taken(relay)
        first.release()
        second = Hold(target, url="unused://")._taken(relay)
        assert second.fence > first.fence
        assert relay.stats().pending_count == 0
