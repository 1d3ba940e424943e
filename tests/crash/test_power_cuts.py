"""The power goes at any call, and unsynced writes are lost, torn and reordered."""

from random import Random

import pytest

from omnirelay.testing import figures
from omnirelay.testing.platter import SECTOR, Change, Inode, Platter
from omnirelay.testing.powercuts import PowerFigures, PowerRun, power_cut_rounds

_ROUNDS = 7


@pytest.mark.timeout(60)
@pytest.mark.parametrize("seed", range(4))
def test_a_power_cut_takes_nothing_that_was_acknowledged_and_leaves_nothing_false(
    seed: int,
) -> None:
    found = power_cut_rounds(seed, _ROUNDS)
    figures.record(
        "power",
        cuts=found.cuts,
        acknowledged_lost=found.acknowledged_lost,
        corrupt_served=found.corrupt_served,
    )
    assert found.problems == []
    assert (found.acknowledged_lost, found.corrupt_served, found.refused) == (0, 0, 0)
    assert found.cuts >= 250, "four seeds must give a thousand cuts"


def test_without_a_sync_at_every_commit_the_harness_sees_losses_and_the_mark_notices_some() -> None:
    found = PowerFigures()
    for seed in range(4):
        found.add(PowerRun(seed, synchronous="NORMAL").run())
    assert found.acknowledged_lost > 0, "the harness is blind"
    assert found.refused > 0, "the high-water mark never noticed a lost tail"
    assert found.corrupt_served == 0, "a shorter journal is still a true one"


def test_one_seed_is_one_run() -> None:
    assert power_cut_rounds(7, 1) == power_cut_rounds(7, 1)


def test_what_was_synced_survives_every_cut() -> None:
    inode = Inode()
    inode.change(Change(0, b"a" * 3 * SECTOR))
    inode.sync()
    inode.change(Change(SECTOR, b"b" * SECTOR))
    for seed in range(50):
        left = inode.cut(Random(seed))
        assert left[:SECTOR] == left[2 * SECTOR :] == b"a" * SECTOR
        assert left[SECTOR : 2 * SECTOR] in (b"a" * SECTOR, b"b" * SECTOR)


def test_unsynced_writes_are_lost_torn_at_sectors_and_reordered() -> None:
    inode = Inode()
    inode.change(Change(0, b"1" * 2 * SECTOR))
    inode.change(Change(0, b"2" * 2 * SECTOR))
    seen = {inode.cut(Random(seed)) for seed in range(300)}
    one, two, none = b"1" * SECTOR, b"2" * SECTOR, bytes(SECTOR)
    assert {b"", one + one, two + two, one + two, none + two} <= seen


def test_a_name_is_certain_only_after_its_directory_was_synced() -> None:
    platter = Platter({"old": b"kept"})
    platter.remove("old")
    platter.create("new")
    names = {frozenset(platter.cut(Random(seed))) for seed in range(50)}
    assert names == {frozenset(), frozenset({"old"}), frozenset({"new"}), frozenset({"old", "new"})}
    platter.sync_names()
    assert {frozenset(platter.cut(Random(seed))) for seed in range(50)} == {frozenset({"new"})}


def test_after_a_failed_sync_bytes_are_readable_and_no_later_sync_writes_them() -> None:
    inode = Inode()
    inode.change(Change(0, b"x" * SECTOR))
    seeds = [seed for seed in range(50) if inode.cut(Random(seed)) == b""]
    inode.fail_sync(Random(seeds[0]))
    inode.sync()
    assert bytes(inode.visible) == b"x" * SECTOR
    assert inode.cut(Random(0)) == b""
