"""Cases about bytes that changed behind a store's back: noticed, and named by sequence."""

import pytest

from omnirelay.journal.format import Sealed
from omnirelay.model.errors import Corrupt
from omnirelay.testing.envelopes import Scribe, scan
from omnirelay.testing.store_medium import SHARD, Hooks, Medium, append_all, opened

_FLIPS = 48
"""Places tried in one envelope here; the format's own test tries every bit."""


async def noticed(medium: Medium) -> Corrupt:
    """What a fresh handle that opens and reads everything says."""
    with pytest.raises(Corrupt) as caught:
        async with opened(medium) as journal:
            await scan(journal, SHARD)
    return caught.value


class NoticingDamage(Hooks):
    @pytest.fixture
    async def written(self, medium: Medium) -> list[Sealed]:
        """Four envelopes of one to four records, stored, and no handle open."""
        if not medium.shows_bytes:
            pytest.skip("this storage does not show its bytes")
        scribe = Scribe(SHARD)
        envelopes = [scribe.seal(count) for count in (2, 3, 1, 2)]
        async with opened(medium) as journal:
            await append_all(journal, envelopes)
        assert medium.bodies() == [sealed.body for sealed in envelopes]
        return envelopes

    @pytest.mark.parametrize("at", range(4))
    async def test_a_flipped_bit_is_noticed_and_named(
        self, medium: Medium, written: list[Sealed], at: int
    ) -> None:
        body = written[at].body
        for place in range(at, 8 * len(body), 8 * len(body) // _FLIPS):
            bad = bytearray(body)
            bad[place // 8] ^= 1 << place % 8
            medium.put_body(at, bytes(bad))
            error = await noticed(medium)
            assert written[at].first <= error.sequence <= written[at].last, f"bit {place}"
            assert str(error.sequence) in error.message
        medium.put_body(at, body)
        async with opened(medium) as journal:
            assert len(await scan(journal, SHARD)) == len(written)

    @pytest.mark.parametrize("at", range(4))
    async def test_an_envelope_cut_short_is_noticed_and_named(
        self, medium: Medium, written: list[Sealed], at: int
    ) -> None:
        body = written[at].body
        for length in (0, 1, len(body) // 2, len(body) - 1):
            medium.put_body(at, body[:length])
            error = await noticed(medium)
            assert written[at].first <= error.sequence <= written[at].last, f"{length} bytes"

    @pytest.mark.parametrize("at", range(3))
    async def test_a_missing_envelope_is_noticed_and_named(
        self, medium: Medium, written: list[Sealed], at: int
    ) -> None:
        medium.drop(at)
        assert (await noticed(medium)).sequence == written[at].first

    @pytest.mark.parametrize(("one", "two"), [(0, 1), (1, 2), (0, 3), (2, 3)])
    async def test_swapped_envelopes_are_noticed_and_the_first_is_named(
        self, medium: Medium, written: list[Sealed], one: int, two: int
    ) -> None:
        medium.put_body(one, written[two].body)
        medium.put_body(two, written[one].body)
        error = await noticed(medium)
        # A store that looks at its end first may see what is wrong there first.
        places = (written[one].first, written[two].first, written[two].last)
        assert error.sequence in places

    async def test_an_envelope_of_another_past_is_noticed_and_named(
        self, medium: Medium, written: list[Sealed]
    ) -> None:
        """Whole, and at its own sequence, but it does not follow from the one before."""
        other = Scribe(SHARD, time=5_000)
        forged = [other.seal(count) for count in (2, 3)][1]
        assert (forged.first, forged.last) == (written[1].first, written[1].last)
        medium.put_body(1, forged.body)
        assert (await noticed(medium)).sequence == written[1].first

    async def test_an_envelope_of_another_shard_is_noticed_and_named(
        self, medium: Medium, written: list[Sealed]
    ) -> None:
        other = Scribe("elsewhere")
        medium.put_body(0, other.seal(2).body)
        assert (await noticed(medium)).sequence == written[0].first

    @pytest.mark.parametrize("kept", range(4))
    async def test_a_lost_tail_is_noticed_when_the_journal_is_opened(
        self, medium: Medium, written: list[Sealed], kept: int
    ) -> None:
        if not medium.notices_lost_tail:
            pytest.skip("this storage keeps no high-water mark")
        for at in reversed(range(kept, 4)):
            medium.drop(at)
        handle = medium.handle()
        with pytest.raises(Corrupt) as caught:
            await handle.open()
        await handle.close()
        assert caught.value.sequence == written[kept].first

    async def test_damage_does_not_hide_what_stands_before_it(
        self, medium: Medium, written: list[Sealed]
    ) -> None:
        medium.drop(2)
        async with opened(medium) as journal:
            assert (await journal.read(0, 2)) == [sealed.body for sealed in written[:2]]
