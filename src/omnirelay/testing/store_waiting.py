"""Cases about waiting for a writer whose bell does not ring here."""

import asyncio
from contextlib import aclosing

from omnirelay.journal.backend import JournalBackend, JournalReader
from omnirelay.journal.follower import tail
from omnirelay.testing.envelopes import Scribe
from omnirelay.testing.store_medium import SHARD, Hooks, Medium, append_all, opened

LONG_S = 15.0
"""Nobody waits so long unless nobody wakes it."""


class Waiting(Hooks):
    async def test_whoever_is_behind_does_not_wait(self, journal: JournalBackend) -> None:
        await append_all(journal, [Scribe(SHARD).seal(3)])
        reader = journal.reader()
        async with asyncio.timeout(LONG_S / 2):
            for after in range(3):
                await reader.wait_for_more(after, LONG_S)
        await reader.close()

    async def test_a_wait_for_nothing_ends_with_its_time(self, journal: JournalBackend) -> None:
        await append_all(journal, [Scribe(SHARD).seal(3)])
        reader = journal.reader()
        async with asyncio.timeout(LONG_S / 2):
            await reader.wait_for_more(3, 0.05)
            await reader.wait_for_more(3, 0.0)
        assert await reader.read(3, 1) == []
        await reader.close()

    async def test_a_waiter_wakes_when_another_handle_appends(self, medium: Medium) -> None:
        scribe = Scribe(SHARD)
        async with opened(medium) as journal, opened(medium) as other:
            await append_all(journal, [scribe.seal(2)])
            reader = journal.reader()
            async with asyncio.timeout(LONG_S / 2):
                for _ in range(3):
                    last = scribe.last
                    waiting = asyncio.create_task(_wait_until_longer(reader, last))
                    await asyncio.sleep(0.02)  # let it settle; too early or late, it must wake
                    await append_all(other, [scribe.seal(2)])
                    await waiting
            await reader.close()

    async def test_a_tail_without_a_bell_follows_a_writer_on_another_thread(
        self, medium: Medium
    ) -> None:
        scribe = Scribe(SHARD)
        envelopes = [scribe.seal(number % 3 + 1) for number in range(20)]

        async def write() -> None:
            async with opened(medium) as journal:
                await append_all(journal, envelopes)

        seen = 0
        async with opened(medium) as journal:
            reader = journal.reader()
            writing = asyncio.create_task(asyncio.to_thread(asyncio.run, write()))
            async with aclosing(tail(reader, SHARD, 0)) as batches:
                async for events in batches:
                    assert [event.sequence_number for event in events] == list(
                        range(seen + 1, seen + 1 + len(events))
                    )
                    seen += len(events)
                    if seen == scribe.last:
                        break
            await writing
            await reader.close()


async def _wait_until_longer(reader: JournalReader, after: int) -> None:
    """A wait may end early; then it begins again."""
    while not await reader.read(after, 1):
        await reader.wait_for_more(after, LONG_S)
