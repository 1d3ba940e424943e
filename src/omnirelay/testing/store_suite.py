"""What every journal store must do, now and later: subclass `JournalSuite` and let pytest find it.

    class TestMyJournal(JournalSuite):
        def make_medium(self, folder: Path) -> Medium:
            return MyMedium(folder)

Needs pytest with `anyio_mode = "auto"`. What a store cannot do its medium says; the cases about it
are then skipped by name, not silently left out.
"""

import asyncio

import pytest

from omnirelay.journal.backend import Head, JournalBackend
from omnirelay.journal.bell import Bell
from omnirelay.journal.format import Chain, Sealed
from omnirelay.model.errors import Fenced, SequenceTaken
from omnirelay.model.ports import set_failpoint
from omnirelay.testing.envelopes import Scribe, scan
from omnirelay.testing.store_beginning import BeginningLate, Extending
from omnirelay.testing.store_damage import NoticingDamage
from omnirelay.testing.store_keeping import Pruning, TakingSnapshots
from omnirelay.testing.store_medium import (
    FOREVER,
    SHARD,
    Hooks,
    Medium,
    append_all,
    opened,
    snapshot_of,
)
from omnirelay.testing.store_versions import Versions
from omnirelay.testing.store_waiting import Waiting

__all__ = ["SHARD", "JournalSuite", "Medium"]


class Interrupted(Exception):
    """Stands for a process that dies at a failpoint."""


class Appending(Hooks):
    async def test_an_empty_journal_ends_at_zero_and_begins_at_one(
        self, journal: JournalBackend
    ) -> None:
        assert await journal.head() == Head()
        assert await journal.first() == 1
        assert await journal.read(0, 10) == []
        assert await journal.snapshot() is None
        assert await journal.prune(FOREVER, before_ms=FOREVER, limit=10) == 0

    async def test_what_was_appended_is_read_back_in_order_and_byte_for_byte(
        self, journal: JournalBackend
    ) -> None:
        scribe = Scribe(SHARD)
        awkward = "zero \x00 quote \" ' back \\ line \n \u2028 snow \u2603 clef \U0001d11e"
        envelopes = [
            scribe.seal(3),
            scribe.seal(2, text=awkward),
            scribe.seal(1, text="x" * 70_000),
        ]
        bodies = await append_all(journal, envelopes)
        assert await journal.read(0, 10) == bodies

    async def test_the_head_names_the_last_envelope(self, journal: JournalBackend) -> None:
        scribe = Scribe(SHARD, epoch=3)
        for count in (1, 4):
            sealed = scribe.seal(count)
            await journal.append(sealed, expected=sealed.first - 1)
            assert await journal.head() == Head(sealed.last, 3, sealed.checksum, sealed.time)
        assert await journal.first() == 1

    async def test_a_fenced_writer_changes_nothing(self, journal: JournalBackend) -> None:
        scribe = Scribe(SHARD)
        bodies = await append_all(journal, [scribe.seal(), scribe.rival(epoch=2).seal(2)])
        late = scribe.seal(5)
        in_place = Scribe(SHARD)
        in_place.last = 3
        for sealed in (late, in_place.seal()):
            with pytest.raises(Fenced):
                await journal.append(sealed, expected=sealed.first - 1)
        assert await journal.read(0, 10) == bodies
        assert (await journal.head()).epoch == 2

    @pytest.mark.parametrize("expected", [0, 1, 3, 4, 6])
    async def test_a_writer_that_expects_another_end_changes_nothing(
        self, journal: JournalBackend, expected: int
    ) -> None:
        scribe = Scribe(SHARD)
        bodies = await append_all(journal, [scribe.seal(2), scribe.seal(3)])
        rival = scribe.rival(epoch=2)
        rival.last = expected
        with pytest.raises(SequenceTaken):
            await journal.append(rival.seal(), expected=expected)
        assert await journal.read(0, 10) == bodies

    async def test_an_epoch_may_stay_or_rise_by_any_step(self, journal: JournalBackend) -> None:
        scribe = Scribe(SHARD, epoch=2)
        for epoch in (2, 2, 3, 9):
            scribe.epoch = epoch
            sealed = scribe.seal(2)
            await journal.append(sealed, expected=sealed.first - 1)
            assert (await journal.head()).epoch == epoch

    async def test_after_a_refusal_the_writer_opens_again_and_goes_on(
        self, journal: JournalBackend
    ) -> None:
        scribe = Scribe(SHARD)
        await append_all(journal, [scribe.seal(), scribe.rival(epoch=2).seal()])
        stale = scribe.seal()
        with pytest.raises(Fenced):
            await journal.append(stale, expected=stale.first - 1)
        await journal.open()
        head = await journal.head()
        scribe.epoch, scribe.last, scribe.link = head.epoch + 1, head.last, head.checksum
        await append_all(journal, [scribe.seal(2)])
        assert [e.epoch for e in await scan(journal, SHARD)] == [1, 2, 3]

    async def test_of_two_writers_at_one_place_one_wins_whole(self, medium: Medium) -> None:
        scribe = Scribe(SHARD)
        async with opened(medium) as one, opened(medium) as two:
            await append_all(one, [scribe.seal(2)])
            rivals = [scribe.rival(epoch=2).seal(3), scribe.rival(epoch=2).seal(4)]
            outcomes = await asyncio.gather(
                one.append(rivals[0], expected=2),
                two.append(rivals[1], expected=2),
                return_exceptions=True,
            )
            assert sorted(type(o).__name__ for o in outcomes) == ["NoneType", "SequenceTaken"]
            winner = rivals[outcomes.index(None)]
            for handle in (one, two):
                assert (await handle.read(2, 10)) == [winner.body]

    async def test_an_append_that_is_cut_off_leaves_the_whole_envelope_or_nothing(
        self, medium: Medium
    ) -> None:
        scribe = Scribe(SHARD)
        async with opened(medium) as journal:
            before = await append_all(journal, [scribe.seal(2)])
        for point in range(100):
            rival = scribe.rival()
            sealed = rival.seal(5)
            is_done = await _append_cut_off(medium, sealed, at=point)
            async with opened(medium) as journal:
                found = await journal.read(0, 100)
                await scan(journal, SHARD)
            assert found in (before, [*before, sealed.body])
            if found != before:
                scribe, before = rival, found
            if is_done:
                return
        pytest.fail("an append passes a hundred failpoints")


async def _append_cut_off(medium: Medium, sealed: Sealed, *, at: int) -> bool:
    """Append, dying at the failpoint number `at`. True if there was no such point to die at."""
    passed: list[str] = []

    def die(name: str) -> None:
        passed.append(name)
        if len(passed) == at + 1:
            raise Interrupted(name)

    async with opened(medium) as journal:
        set_failpoint(die)
        try:
            await journal.append(sealed, expected=sealed.first - 1)
        except Interrupted:
            return False
        finally:
            set_failpoint(None)
    return True


class Reading(Hooks):
    async def test_a_read_begins_with_the_envelope_that_holds_the_next_record(
        self, journal: JournalBackend
    ) -> None:
        scribe = Scribe(SHARD)
        envelopes = [scribe.seal(count) for count in (3, 1, 4, 2)]
        await append_all(journal, envelopes)
        for after in range(scribe.last + 2):
            wanted = [sealed.body for sealed in envelopes if sealed.last > after]
            assert await journal.read(after, 10) == wanted, f"after {after}"

    async def test_a_read_gives_at_most_its_limit(self, journal: JournalBackend) -> None:
        scribe = Scribe(SHARD)
        bodies = await append_all(journal, [scribe.seal(2) for _ in range(5)])
        for limit in (1, 3, 5, 9):
            assert await journal.read(0, limit) == bodies[:limit]
            assert await journal.read(3, limit) == bodies[1 : 1 + limit]

    async def test_a_reader_of_its_own_sees_what_was_committed_and_nothing_else(
        self, medium: Medium, journal: JournalBackend
    ) -> None:
        scribe = Scribe(SHARD)
        await append_all(journal, [scribe.seal(2)])
        reader = journal.reader()
        try:
            for _ in range(5):
                sealed = scribe.seal(2)
                with pytest.raises(SequenceTaken):
                    await journal.append(scribe.rival(epoch=1).seal(), expected=scribe.last)
                assert await reader.read(sealed.first - 1, 10) == []
                await journal.append(sealed, expected=sealed.first - 1)
                assert await reader.read(sealed.first - 1, 10) == [sealed.body]
                assert await reader.head() == await journal.head()
            assert await reader.first() == 1
        finally:
            await reader.close()

    async def test_a_reader_follows_a_writer_on_another_thread_by_its_bell(
        self, medium: Medium
    ) -> None:
        scribe, bell = Scribe(SHARD), Bell()
        envelopes = [scribe.seal(number % 3 + 1) for number in range(40)]

        async def write() -> None:
            async with opened(medium) as journal:
                for sealed in envelopes:
                    await journal.append(sealed, expected=sealed.first - 1)
                    bell.ring(sealed.last)

        async with opened(medium) as journal:
            reader = journal.reader()
            writing = asyncio.create_task(asyncio.to_thread(asyncio.run, write()))
            chain = Chain(SHARD)
            seen: list[bytes] = []
            while chain.last < scribe.last:
                await bell.wait(chain.last, 10.0)
                bodies = await reader.read(chain.last, 7)
                seen += bodies
                list(chain.accept_all(bodies))
            await writing
            await reader.close()
        assert seen == [sealed.body for sealed in envelopes]


class Reopening(Hooks):
    async def test_a_new_handle_finds_what_an_old_one_left(self, medium: Medium) -> None:
        scribe = Scribe(SHARD)
        bodies: list[bytes] = []
        for _ in range(3):
            async with opened(medium) as journal:
                assert await journal.read(0, 10) == bodies
                bodies += await append_all(journal, [scribe.seal(2), scribe.seal(1)])
                head = await journal.head()
            async with opened(medium) as journal:
                assert await journal.head() == head

    async def test_a_handle_may_be_opened_again_and_again(self, journal: JournalBackend) -> None:
        scribe = Scribe(SHARD)
        bodies: list[bytes] = []
        for _ in range(3):
            await journal.open()
            bodies += await append_all(journal, [scribe.seal(2)])
            await journal.open()
            assert await journal.read(0, 10) == bodies

    async def test_a_handle_may_be_closed_twice_and_opened_afterwards(
        self, journal: JournalBackend
    ) -> None:
        scribe = Scribe(SHARD)
        bodies = await append_all(journal, [scribe.seal(2)])
        await journal.close()
        await journal.close()
        await journal.open()
        assert await journal.read(0, 10) == bodies

    async def test_a_store_says_what_an_append_survives_and_why(
        self, journal: JournalBackend
    ) -> None:
        stated = await journal.durability()
        assert stated.condition
        assert stated.survives_process_kill or not stated.survives_power_loss
        assert journal.shard == SHARD
        assert journal.name


class SharingStorage(Hooks):
    async def test_two_shards_in_one_storage_do_not_mix(self, medium: Medium) -> None:
        if not medium.holds_shards:
            pytest.skip("this storage holds one shard")
        names = ("orders", "orders-2", "or/ders %", "ORDERS")
        scribes = {name: Scribe(name, epoch=number) for number, name in enumerate(names, 1)}
        bodies: dict[str, list[bytes]] = {name: [] for name in names}
        for number in range(6):
            for name, scribe in scribes.items():
                async with opened(medium, name) as journal:
                    bodies[name] += await append_all(journal, [scribe.seal(number % 3 + 1)])
        async with opened(medium, names[0]) as journal:
            ref = await snapshot_of(journal, scribes[names[0]].last, [b"one", b"two"])
            assert await journal.prune(4, before_ms=FOREVER, limit=10) == 2
            bodies[names[0]] = bodies[names[0]][2:]
        for number, name in enumerate(names, 1):
            async with opened(medium, name) as journal:
                assert await journal.read((await journal.first()) - 1, 10) == bodies[name]
                assert (await journal.head()).epoch == number
                assert await journal.snapshot() == (ref if name == names[0] else None)


class JournalSuite(
    Appending,
    Reading,
    Waiting,
    Reopening,
    SharingStorage,
    BeginningLate,
    Extending,
    TakingSnapshots,
    Pruning,
    NoticingDamage,
    Versions,
):
    """Every case. Inherit it once for each kind of storage."""
