"""Cases about the version of a store's layout: an older one goes on, a later one is left alone."""

import pytest

from omnirelay.model.errors import InvalidArgument
from omnirelay.testing.envelopes import Scribe, scan
from omnirelay.testing.store_medium import SHARD, Hooks, Medium, append_all, opened


class Versions(Hooks):
    @pytest.fixture
    async def scribe(self, medium: Medium) -> Scribe:
        """Has written five records, and no handle is open."""
        if not medium.outlives_programs:
            pytest.skip("this storage ends with its program")
        scribe = Scribe(SHARD)
        async with opened(medium) as journal:
            await append_all(journal, [scribe.seal(2), scribe.seal(3)])
        return scribe

    async def test_a_journal_says_its_layout_s_version_before_its_first_append(
        self, medium: Medium
    ) -> None:
        if not medium.outlives_programs:
            pytest.skip("this storage ends with its program")
        for _ in range(2):  # whoever opens it again finds it there
            async with opened(medium):
                pass
            assert medium.version() == 1

    async def test_a_journal_that_says_no_version_is_of_the_first_and_goes_on(
        self, medium: Medium, scribe: Scribe
    ) -> None:
        if not medium.named_no_version:
            pytest.skip("this storage has always said its version")
        medium.put_version(None)
        assert medium.version() is None
        reader = medium.handle().reader()
        assert (await reader.head()).last == scribe.last
        await reader.close()
        async with opened(medium) as journal:
            await append_all(journal, [scribe.seal(1)])
        async with opened(medium) as journal:
            assert [one.last for one in await scan(journal, SHARD)] == [2, 5, 6]

    async def test_a_later_version_s_journal_is_refused_and_left_as_it_was(
        self, medium: Medium, scribe: Scribe
    ) -> None:
        known = medium.version()
        assert known is not None
        before = medium.bodies()
        medium.put_version(known + 1)
        handle = medium.handle()
        reader = handle.reader()
        for ask in (handle.open, handle.open, reader.head, reader.head):
            with pytest.raises(InvalidArgument) as caught:
                await ask()
            assert f"layout version {known + 1}, this program knows {known}" in str(caught.value)
            assert "upgrade this one" in str(caught.value)
        await reader.close()
        await handle.close()
        assert (medium.bodies(), medium.version()) == (before, known + 1)
        medium.put_version(known)
        async with opened(medium) as journal:
            await append_all(journal, [scribe.seal(1)])
            assert len(await scan(journal, SHARD)) == 3
