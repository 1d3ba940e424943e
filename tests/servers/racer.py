"""A process that appends to a shard which others append to as well: `racer.py URL SHARD COUNT`.
Prints how many envelopes it won."""

import asyncio
import sys

from omnirelay.journal.backend import JournalBackend
from omnirelay.model.errors import SequenceTaken
from omnirelay.stores.registry import open_address
from omnirelay.testing.envelopes import Scribe


async def race(journal: JournalBackend, count: int) -> None:
    for _ in range(count):
        head = await journal.head()
        scribe = Scribe(journal.shard)
        scribe.last, scribe.link = head.last, head.checksum
        await journal.append(scribe.seal(2), expected=head.last)


async def main(url: str, shard: str, count: int) -> None:
    journal = open_address(url, shard).journal
    await journal.open()
    won = 0
    while won < count:
        try:
            await race(journal, 1)
            won += 1
        except SequenceTaken:
            await journal.open()
    await journal.close()
    print(won)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
