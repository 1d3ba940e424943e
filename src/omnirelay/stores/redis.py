"""`redis://host:port/db?prefix=…` — a stream a shard, on Redis or Valkey.

An append is one script, which the server runs whole and alone: it checks the epoch and the end of
the journal, adds the envelope and moves the head. What that survives is up to the server's
settings, and a failover may lose it: see `durability`.
"""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import takewhile
from typing import Any

import redis.exceptions as failed

from omnirelay.journal.backend import Durability, Head, JournalSource, SnapshotRef
from omnirelay.journal.format import Sealed
from omnirelay.model.errors import Corrupt, Fenced, SequenceTaken
from omnirelay.model.ports import failpoint
from omnirelay.stores.redis_durability import durability
from omnirelay.stores.redis_keys import entry, sequence_of
from omnirelay.stores.redis_link import RedisTarget
from omnirelay.stores.redis_reading import LAYOUT_VERSION, RedisReader

# The stream comes first: it refuses what does not follow, and then nothing was changed. What comes
# after it cannot fail, since the head was just read.
_APPEND = """
local head = redis.call('HMGET', KEYS[1], 'last', 'epoch')
local last, epoch = head[1] or '0', head[2] or '0'
if tonumber(epoch) > tonumber(ARGV[2]) then return {'fenced', epoch} end
if last ~= ARGV[1] then return {'taken', last} end
redis.call('XADD', KEYS[2], ARGV[4] .. '-0', 'first', ARGV[3], 'body', ARGV[7])
redis.call('XADD', KEYS[3], ARGV[4] .. '-0', 'first', ARGV[3], 'time', ARGV[5])
redis.call('HSET', KEYS[1], 'last', ARGV[4], 'epoch', ARGV[2], 'checksum', ARGV[6], 'time', ARGV[5])
if ARGV[8] then redis.call('HSET', KEYS[1], 'pruned', ARGV[8]) end
return {'done', ARGV[4]}
"""

# A later snapshot stays the latest: a writer whose term is over may come last.
_FINISH = """
local known = redis.call('HGET', KEYS[1], 'sequence')
if known and tonumber(known) > tonumber(ARGV[2]) then return 0 end
return redis.call('HSET', KEYS[1], unpack(ARGV))
"""

# The same for several: one check, since none of them may go where another has been.
_EXTEND = """
local head = redis.call('HMGET', KEYS[1], 'last', 'epoch')
local last, epoch = head[1] or '0', head[2] or '0'
if tonumber(epoch) > tonumber(ARGV[2]) then return {'fenced', epoch} end
if last ~= ARGV[1] then return {'taken', last} end
for at = 6, #ARGV, 4 do
  last = ARGV[at + 1]
  redis.call('XADD', KEYS[2], last .. '-0', 'first', ARGV[at], 'body', ARGV[at + 3])
  redis.call('XADD', KEYS[3], last .. '-0', 'first', ARGV[at], 'time', ARGV[at + 2])
end
redis.call('HSET', KEYS[1], 'last', last, 'epoch', ARGV[3], 'checksum', ARGV[4], 'time', ARGV[5])
return {'done', last}
"""


class RedisJournal(RedisReader):
    name = "redis"

    def __init__(self, target: RedisTarget, shard: str) -> None:
        super().__init__(target, shard)
        self._script: str | None = None
        """The server's name for `_APPEND`."""

    async def open(self) -> None:
        await self.close()
        self._script = await self._link.ask(lambda client: client.script_load(_APPEND))
        head = self._keys.head
        # Written even if it is there: a replica refuses here, and not the first append.
        await self._link.ask(lambda client: client.hsetnx(head, "version", LAYOUT_VERSION))
        await self._check_end()

    async def _check_end(self) -> None:
        """The head is kept apart from the envelopes, so that a lost tail is noticed."""
        while True:
            head = await self.head()
            try:
                return await self._check_envelope(head)
            except Corrupt:
                if await self.head() == head:
                    raise
            # Another writer has gone on since, and perhaps pruned what was looked for.

    async def _check_envelope(self, head: Head) -> None:
        if head.last == 0:
            return
        found = await self._link.ask(
            lambda client: client.xrevrange(self._keys.log, max=entry(head.last), count=1)
        )
        last = sequence_of(found[0][0]) if found else 0
        if last < head.last:
            why = f"the journal ends at {last} but {head.last} was acknowledged"
            raise Corrupt(self.shard, last + 1, why)
        if not found[0][1][b"body"].endswith(f'{head.checksum}"}}'.encode()):
            raise Corrupt(self.shard, head.last, "its end is not the one that was acknowledged")

    async def durability(self) -> Durability:
        return await durability(self._link)

    async def append(self, sealed: Sealed, *, expected: int) -> None:
        assert sealed.first == expected + 1
        await self._put(sealed, expected)

    async def begin(self, sealed: Sealed) -> None:
        await self._put(sealed, 0, sealed.first - 1)

    async def extend(self, envelopes: Sequence[Sealed], *, expected: int) -> None:
        if not envelopes:
            return
        first, last = envelopes[0], envelopes[-1]
        head = (expected, first.epoch, last.epoch, last.checksum, last.time)
        rows = [(one.first, one.last, one.time, one.body) for one in envelopes]
        values = (*head, *(value for row in rows for value in row))
        failpoint("redis.before_extend")
        outcome = await self._link.ask(
            lambda client: client.eval(_EXTEND, len(self._written), *self._written, *values)
        )
        failpoint("redis.after_extend")
        self._check(first, expected, outcome)

    async def _put(self, sealed: Sealed, expected: int, *pruned: int) -> None:
        assert self._script is not None, "the journal is not open"
        values = (*_values(sealed, expected), *pruned)
        failpoint("redis.before_append")
        outcome = await self._link.ask(lambda client: self._run(client, self._written, values))
        failpoint("redis.after_append")
        self._check(sealed, expected, outcome)

    @property
    def _written(self) -> tuple[str, ...]:
        return self._keys.head, self._keys.log, self._keys.index

    def _check(self, sealed: Sealed, expected: int, outcome: Any) -> None:
        """Any: what the script returned."""
        if outcome[0] == b"fenced":
            raise Fenced(self.shard, sealed.epoch, int(outcome[1]))
        if outcome[0] == b"taken":
            raise SequenceTaken(self.shard, expected, int(outcome[1]))

    async def _run(self, client: Any, keys: tuple[str, ...], values: tuple[Any, ...]) -> Any:
        """Any: see `RedisTarget.client`. A server that forgot the script has done nothing."""
        try:
            return await client.evalsha(self._script, len(keys), *keys, *values)
        except failed.NoScriptError:
            return await client.eval(_APPEND, len(keys), *keys, *values)

    def reader(self) -> JournalSource:
        return RedisReader(self.target, self.shard)

    # -- keeping it bounded ---------------------------------------------------------------------

    async def write_part(self, sequence: int, part: int, body: bytes) -> None:
        if part == 0:
            finished = await self.snapshot()
            kept = 0 if finished is None else finished.sequence
            await self._drop_parts(lambda one: one <= sequence and one != kept)
        await self._link.ask(lambda client: self._put_part(client, sequence, part, body))
        failpoint("redis.after_part")

    async def _put_part(self, client: Any, sequence: int, part: int, body: bytes) -> None:
        async with client.pipeline(transaction=True) as all_or_none:
            all_or_none.sadd(self._keys.snapshots, sequence)
            all_or_none.hset(self._keys.parts(sequence), str(part), body)
            await all_or_none.execute()

    async def finish_snapshot(self, ref: SnapshotRef) -> None:
        fields = {
            "sequence": ref.sequence,
            "epoch": ref.epoch,
            "link": ref.link,
            "time": ref.time,
            "parts": ref.parts,
            "checksum": ref.checksum,
        }
        flat = [word for field in fields.items() for word in field]
        await self._link.ask(lambda client: client.eval(_FINISH, 1, self._keys.snapshot, *flat))
        failpoint("redis.after_finish")
        # Only what is older: what is newer may be a rival's that is still being written.
        await self._drop_parts(lambda one: one < ref.sequence)

    async def _drop_parts(self, is_old: Callable[[int], bool]) -> None:
        known = await self._link.ask(lambda client: client.smembers(self._keys.snapshots))
        for sequence in sorted(int(one) for one in known):
            if is_old(sequence):
                await self._link.ask(partial(self._drop_snapshot, sequence))

    async def _drop_snapshot(self, sequence: int, client: Any) -> None:
        async with client.pipeline(transaction=True) as all_or_none:
            all_or_none.unlink(self._keys.parts(sequence))
            all_or_none.srem(self._keys.snapshots, sequence)
            await all_or_none.execute()

    async def prune(self, through: int, *, before_ms: int, limit: int) -> int:
        found = await self._link.ask(
            lambda client: client.xrange(self._keys.index, count=limit + 1)
        )
        rows = [(sequence_of(one), int(fields[b"time"])) for one, fields in found]
        # Up to the first that must stay and never past it: a hole would be damage. One more than
        # the limit was read, so that the last one stays.
        old = takewhile(lambda row: row[0] <= through and row[1] <= before_ms, rows[:-1])
        gone = [last for last, _ in old]
        if gone:
            await self._link.ask(lambda client: self._trim(client, gone[-1]))
        return len(gone)

    async def _trim(self, client: Any, pruned: int) -> None:
        async with client.pipeline(transaction=True) as all_or_none:
            all_or_none.hset(self._keys.head, "pruned", pruned)
            for key in (self._keys.log, self._keys.index):
                all_or_none.xtrim(key, minid=entry(pruned + 1), approximate=False)
            await all_or_none.execute()


def _values(sealed: Sealed, expected: int) -> tuple[Any, ...]:
    """Any: as the script takes them."""
    return (
        *(expected, sealed.epoch, sealed.first, sealed.last, sealed.time),
        *(sealed.checksum, sealed.body),
    )
