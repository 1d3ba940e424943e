"""A folder that is listed while objects come into it may show a later one and not an earlier."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from omnirelay.model.errors import Corrupt
from omnirelay.stores.objects import ObjectJournal
from omnirelay.stores.objects_files import FileBucket
from omnirelay.stores.objects_layout import Layout
from omnirelay.stores.objects_read import ObjectReader
from omnirelay.testing.envelopes import Scribe

SHARD = "orders"


class Listed(FileBucket):
    """Its next listing of envelopes does not show some that are there."""

    hidden: frozenset[str] = frozenset()

    async def keys(self, prefix: str, after: str = "") -> list[str]:
        found = await super().keys(prefix, after)
        if prefix != Layout(SHARD).envelopes:
            return found
        hidden, self.hidden = self.hidden, frozenset()
        return [key for key in found if key not in hidden]


@pytest.fixture
async def bucket(tmp_path: Path) -> AsyncIterator[Listed]:
    bucket, scribe = Listed(str(tmp_path / "journals")), Scribe(SHARD)
    journal = ObjectJournal(bucket, SHARD)
    await journal.open()
    for _ in range(5):
        sealed = scribe.seal(2)
        await journal.append(sealed, expected=sealed.first - 1)
    yield bucket
    await journal.close()


async def read_all(bucket: Listed, *, hides: int, limit: int) -> list[int]:
    """The beginnings of all envelopes, where the second listing hides one."""
    reader = ObjectReader(bucket, SHARD)
    found, after = list[int](), 0
    first = True
    while bodies := await reader.read(after, 2 if first else limit):
        found += [after + 1 + 2 * n for n in range(len(bodies))]
        after += 2 * len(bodies)
        if first:
            bucket.hidden = frozenset({Layout(SHARD).envelope(hides)})
        first = False
    return found


@pytest.mark.parametrize("limit", [1, 2, 10])
@pytest.mark.parametrize("hides", [3, 5, 7, 9])
async def test_it_is_looked_at_again_before_it_is_called_damage(
    bucket: Listed, hides: int, limit: int
) -> None:
    assert await read_all(bucket, hides=hides, limit=limit) in (
        [1, 3, 5, 7, 9],
        [1, 3, 5, 7],  # the last one was not there yet
    )


async def test_one_that_stays_away_is_damage_and_named(bucket: Listed) -> None:
    await bucket.delete([Layout(SHARD).envelope(7)])
    reader = ObjectReader(bucket, SHARD)
    assert len(await reader.read(0, 10)) == 3
    with pytest.raises(Corrupt, match="goes on at 9") as caught:
        await reader.read(6, 10)
    assert caught.value.sequence == 7
