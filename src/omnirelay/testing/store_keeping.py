"""Cases about what keeps a journal bounded: snapshots and pruning."""

import pytest

from omnirelay.journal.backend import JournalBackend
from omnirelay.model.errors import Corrupt
from omnirelay.testing.envelopes import Scribe, scan
from omnirelay.testing.store_medium import (
    FOREVER,
    SHARD,
    Hooks,
    Medium,
    append_all,
    opened,
    snapshot_of,
)

BINARY = bytes(range(256)) * 40


class TakingSnapshots(Hooks):
    async def test_an_unfinished_snapshot_is_invisible(self, medium: Medium) -> None:
        async with opened(medium) as journal:
            await append_all(journal, [Scribe(SHARD).seal(5)])
            await snapshot_of(journal, 5, [b"a", b"b"], finish=False)
            assert await journal.snapshot() is None
        async with opened(medium) as journal:
            assert await journal.snapshot() is None

    async def test_a_finished_snapshot_is_found_by_every_handle_with_all_its_parts(
        self, medium: Medium
    ) -> None:
        parts = [b"", b"text", BINARY]
        async with opened(medium) as journal:
            await append_all(journal, [Scribe(SHARD).seal(5)])
            ref = await snapshot_of(journal, 5, parts)
            assert await journal.snapshot() == ref
        async with opened(medium) as journal:
            assert await journal.snapshot() == ref
            assert [await journal.read_part(5, number) for number in range(3)] == parts

    async def test_a_finished_snapshot_replaces_the_one_before(
        self, journal: JournalBackend
    ) -> None:
        await append_all(journal, [Scribe(SHARD).seal(9)])
        await snapshot_of(journal, 4, [b"old"] * 30)
        ref = await snapshot_of(journal, 9, [b"new", b"er"])
        assert await journal.snapshot() == ref
        assert [await journal.read_part(9, number) for number in range(2)] == [b"new", b"er"]

    async def test_a_snapshot_that_was_given_up_spoils_neither_the_last_nor_the_next(
        self, medium: Medium
    ) -> None:
        async with opened(medium) as journal:
            await append_all(journal, [Scribe(SHARD).seal(9)])
            last = await snapshot_of(journal, 3, [b"three"] * 4)
            await snapshot_of(journal, 6, [b"lost"] * 20, finish=False)
        async with opened(medium) as journal:
            assert await journal.snapshot() == last
            assert [await journal.read_part(3, number) for number in range(4)] == [b"three"] * 4
            after = await snapshot_of(journal, 9, [b"nine"])
            assert await journal.snapshot() == after
            assert await journal.read_part(9, 0) == b"nine"

    async def test_a_snapshot_finished_late_does_not_replace_a_newer_one(
        self, journal: JournalBackend
    ) -> None:
        """An owner that was replaced in the middle of it does not know that it was."""
        await append_all(journal, [Scribe(SHARD).seal(9)])
        late = await snapshot_of(journal, 4, [b"late"] * 2, finish=False)
        newer = await snapshot_of(journal, 9, [b"new", b"er"])
        await journal.finish_snapshot(late)
        assert await journal.snapshot() == newer
        assert [await journal.read_part(9, number) for number in range(2)] == [b"new", b"er"]

    async def test_an_older_snapshot_spoils_no_newer_one_that_is_being_written(
        self, journal: JournalBackend
    ) -> None:
        await append_all(journal, [Scribe(SHARD).seal(9)])
        newer = await snapshot_of(journal, 9, [b"new", b"er"], finish=False)
        await snapshot_of(journal, 4, [b"late"] * 2)
        await journal.finish_snapshot(newer)
        assert await journal.snapshot() == newer
        assert [await journal.read_part(9, number) for number in range(2)] == [b"new", b"er"]

    async def test_a_part_written_again_is_the_later_one(self, journal: JournalBackend) -> None:
        await append_all(journal, [Scribe(SHARD).seal(5)])
        await snapshot_of(journal, 5, [b"a", b"b", b"c"], finish=False)
        await snapshot_of(journal, 5, [b"x", b"y"])
        assert [await journal.read_part(5, number) for number in range(2)] == [b"x", b"y"]

    async def test_a_missing_part_is_corrupt_and_names_the_snapshot(
        self, journal: JournalBackend
    ) -> None:
        await append_all(journal, [Scribe(SHARD).seal(5)])
        await snapshot_of(journal, 5, [b"a"])
        for sequence, part in ((5, 1), (4, 0)):
            with pytest.raises(Corrupt) as caught:
                await journal.read_part(sequence, part)
            assert caught.value.sequence == sequence


class Pruning(Hooks):
    async def test_pruning_ends_at_the_last_envelope_that_is_whole_before_the_mark(
        self, journal: JournalBackend
    ) -> None:
        scribe = Scribe(SHARD)
        bodies = await append_all(journal, [scribe.seal(count) for count in (2, 2, 3, 1, 2)])
        gone = 0
        for through, left in ((0, 0), (1, 0), (2, 1), (5, 2), (6, 2), (7, 3)):
            gone += await journal.prune(through, before_ms=FOREVER, limit=10)
            assert gone == left, f"through {through}"
            first = await journal.first()
            assert await journal.read(first - 1, 10) == bodies[left:]
            assert first == [1, 3, 5, 8][left]

    async def test_pruning_stops_at_the_first_envelope_that_is_too_young(
        self, journal: JournalBackend
    ) -> None:
        scribe = Scribe(SHARD)
        # A clock that went back must not make a hole: what is older behind a young one stays.
        times = (100, 200, 500, 150, 100, 600)
        bodies = await append_all(journal, [scribe.seal(time=time) for time in times])
        assert await journal.prune(6, before_ms=99, limit=10) == 0
        assert await journal.prune(6, before_ms=200, limit=10) == 2
        assert await journal.prune(6, before_ms=200, limit=10) == 0
        assert await journal.read(2, 10) == bodies[2:]
        assert await journal.prune(6, before_ms=500, limit=10) == 3

    async def test_pruning_never_drops_the_last_envelope(self, journal: JournalBackend) -> None:
        scribe = Scribe(SHARD)
        await append_all(journal, [scribe.seal(2) for _ in range(3)])
        head = await journal.head()
        assert await journal.prune(FOREVER, before_ms=FOREVER, limit=10) == 2
        assert await journal.prune(FOREVER, before_ms=FOREVER, limit=10) == 0
        assert await journal.head() == head
        assert await journal.first() == 5

    async def test_pruning_takes_the_oldest_and_at_most_its_limit(
        self, journal: JournalBackend
    ) -> None:
        scribe = Scribe(SHARD)
        bodies = await append_all(journal, [scribe.seal() for _ in range(7)])
        for left in (2, 4, 6):
            assert await journal.prune(7, before_ms=FOREVER, limit=2) == 2
            assert await journal.read(left, 10) == bodies[left:]
        assert await journal.prune(7, before_ms=FOREVER, limit=2) == 0

    async def test_what_was_pruned_is_named_and_the_rest_goes_on(self, medium: Medium) -> None:
        scribe = Scribe(SHARD)
        async with opened(medium) as journal:
            await append_all(journal, [scribe.seal(2) for _ in range(4)])
            await journal.prune(4, before_ms=FOREVER, limit=10)
        async with opened(medium) as journal:
            reader = journal.reader()
            for after in range(4):
                for source in (journal, reader):
                    with pytest.raises(Corrupt) as caught:
                        await source.read(after, 1)
                    assert caught.value.sequence == after + 1
            await reader.close()
            await append_all(journal, [scribe.seal(3)])
            assert [e.first for e in await scan(journal, SHARD, after=4)] == [5, 7, 9]
            assert await journal.first() == 5
