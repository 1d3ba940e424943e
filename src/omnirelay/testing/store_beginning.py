"""Cases about a journal that is filled from another one, whose beginning was pruned there."""

import pytest

from omnirelay.model.errors import Corrupt, Fenced, SequenceTaken
from omnirelay.testing.envelopes import Scribe, scan
from omnirelay.testing.store_medium import (
    FOREVER,
    SHARD,
    Hooks,
    Medium,
    append_all,
    opened,
)


class BeginningLate(Hooks):
    async def test_an_empty_journal_may_begin_where_another_was_pruned(
        self, medium: Medium
    ) -> None:
        scribe = Scribe(SHARD)
        written = [scribe.seal(3) for _ in range(4)]
        kept = written[2:]
        async with opened(medium) as journal:
            await journal.begin(kept[0])
            await append_all(journal, kept[1:])
        async with opened(medium) as journal:
            assert await journal.first() == 7
            assert [one.first for one in await scan(journal, SHARD, after=6)] == [7, 10]
            with pytest.raises(Corrupt) as caught:
                await journal.read(0, 1)
            assert caught.value.sequence == 1
            await append_all(journal, [scribe.seal(2)])
            assert await journal.prune(FOREVER, before_ms=FOREVER, limit=10) == 2
            assert await journal.first() == 13

    async def test_a_journal_that_holds_something_does_not_begin_again(
        self, medium: Medium
    ) -> None:
        scribe = Scribe(SHARD)
        held = scribe.seal(3)
        later = scribe.seal(2)
        async with opened(medium) as journal:
            await append_all(journal, [held])
            for again in (held, later):
                with pytest.raises(SequenceTaken):
                    await journal.begin(again)
        async with opened(medium) as journal:
            assert await journal.read(0, 9) == [held.body]
            await append_all(journal, [later])


class Extending(Hooks):
    async def test_several_are_appended_in_order_or_not_at_all(self, medium: Medium) -> None:
        scribe = Scribe(SHARD)
        written = [scribe.seal(2) for _ in range(9)]
        async with opened(medium) as journal:
            await journal.extend(written[:1], expected=0)
            await journal.extend(written[1:6], expected=2)
            await journal.extend([], expected=12)
            for again, expected in ((written[:3], 0), (written[4:], 8), (written[7:], 14)):
                with pytest.raises(SequenceTaken):
                    await journal.extend(again, expected=expected)
        async with opened(medium) as journal:
            await journal.extend(written[6:], expected=12)
            assert await journal.read(0, 99) == [sealed.body for sealed in written]
            await append_all(journal, [scribe.seal(1)])
            assert len(await scan(journal, SHARD)) == 10

    async def test_several_of_a_term_that_is_over_change_nothing(self, medium: Medium) -> None:
        scribe = Scribe(SHARD)
        first = scribe.seal(2)
        rival = scribe.rival(epoch=2)
        async with opened(medium) as journal:
            await append_all(journal, [first, rival.seal(1)])
            with pytest.raises(Fenced):
                await journal.extend([scribe.seal(1), scribe.seal(1)], expected=2)
            assert (await journal.head()).last == 3

    @pytest.mark.parametrize(("epoch", "refusal"), [(1, SequenceTaken), (2, Fenced)])
    async def test_of_several_that_a_rival_was_quicker_than_none_finds_a_place(
        self, medium: Medium, epoch: int, refusal: type[Exception]
    ) -> None:
        """The rival's ends where the first of them would: by its number the second one fits."""
        scribe = Scribe(SHARD)
        first = scribe.seal(2)
        quicker = scribe.rival(epoch=epoch).seal(2, text="another")
        async with opened(medium) as one, opened(medium) as two:
            await one.extend([first], expected=0)
            await two.append(quicker, expected=2)
            with pytest.raises(refusal):
                await one.extend([scribe.seal(2), scribe.seal(2), scribe.seal(2)], expected=2)
        async with opened(medium) as journal:
            assert await journal.read(0, 99) == [first.body, quicker.body]
            assert len(await scan(journal, SHARD)) == 2
