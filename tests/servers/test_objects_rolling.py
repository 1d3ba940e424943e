"""Journals on object stores whose old envelopes were rolled up or pruned: what a writer finds that
slept meanwhile, and what an ordinary append costs."""

import asyncio
import signal
import sys
from asyncio.subprocess import PIPE
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from omnirelay.journal.backend import JournalBackend
from omnirelay.model.errors import Fenced, OmniRelayError, SequenceTaken
from omnirelay.model.ports import set_failpoint
from omnirelay.stores.objects import ObjectJournal
from omnirelay.stores.objects_layout import Layout, numbers
from omnirelay.stores.objects_roll import roll
from omnirelay.testing.envelopes import Scribe, scan
from omnirelay.testing.store_medium import FOREVER, SHARD, append_all, opened
from omnirelay.testing.store_suite import Interrupted
from tests.conformance.object_storage import ObjectStorage, aside
from tests.servers.counted_bucket import CountedBucket

if TYPE_CHECKING:
    from omnirelay.stores.objects_bucket import Bucket
    from omnirelay.testing.servers_objects import ObjectServer

_numbers = count()
ROLL = 4
SLEEPER = Path(__file__).with_name("sleeper.py")


@pytest.fixture(params=["file", "s3", "gs", "az"])
def storage(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> ObjectStorage:
    if request.param == "file":
        return ObjectStorage(f"file://{tmp_path}/journals")
    server: ObjectServer = request.getfixturevalue(request.param)
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    return ObjectStorage(server.url(f"rolling{next(_numbers)}"))


async def own_objects(bucket: "Bucket") -> list[int]:
    return [first for key in await bucket.keys(Layout(SHARD).envelopes) for first in numbers(key)]


async def tidy_up(storage: ObjectStorage, how: str) -> None:
    """Whatever may go, goes."""
    if how == "rolled":
        while await roll(storage.bucket, SHARD, count=ROLL):
            pass
        return
    async with opened(storage) as journal:
        while await journal.prune(FOREVER, before_ms=FOREVER, limit=ROLL):
            pass


async def go_on(storage: ObjectStorage, scribe: Scribe, how: str) -> None:
    """Another writer goes on from where `scribe` stands, until what it wrote first is tidied up."""
    async with opened(storage) as rival:
        await append_all(rival, [scribe.seal() for _ in range(5 * ROLL)])
    await tidy_up(storage, how)


async def refused(journal: JournalBackend, scribe: Scribe) -> OmniRelayError:
    sealed = scribe.seal()
    with pytest.raises((Fenced, SequenceTaken)) as caught:
        await journal.append(sealed, expected=sealed.first - 1)
    return caught.value


async def holds_only(storage: ObjectStorage, scribe: Scribe) -> None:
    """The journal ends where `scribe` ended, and what is read leads there."""
    async with opened(storage) as journal:
        await scan(journal, SHARD, after=(await journal.first()) - 1)
        head = await journal.head()
    assert (head.last, head.checksum) == (scribe.last, scribe.link)


# -- writers that slept ---------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["rolled", "pruned"])
async def test_an_owner_that_slept_until_its_place_was_tidied_up_has_appended_nothing(
    storage: ObjectStorage, how: str
) -> None:
    scribe = Scribe(SHARD)
    async with opened(storage) as sleeper:
        await append_all(sleeper, [scribe.seal(2), scribe.seal(3)])
        rival = scribe.rival(epoch=2)
        await go_on(storage, rival, how)
        assert isinstance(await refused(sleeper, scribe), Fenced)
    await holds_only(storage, rival)


@pytest.mark.parametrize("how", ["rolled", "pruned"])
async def test_a_copy_that_slept_until_another_had_gone_on_in_its_place_adds_nothing(
    storage: ObjectStorage, how: str
) -> None:
    scribe = Scribe(SHARD)
    async with opened(storage) as first:
        await append_all(first, [scribe.seal(2)])
    async with opened(storage) as sleeper:
        await sleeper.extend([scribe.seal(3), scribe.seal()], expected=2)
        rival = scribe.rival(epoch=2)
        await go_on(storage, rival, how)
        with pytest.raises(Fenced):
            await sleeper.extend([scribe.seal(), scribe.seal()], expected=6)
    await holds_only(storage, rival)


@pytest.mark.parametrize("how", ["rolled", "pruned"])
@pytest.mark.parametrize("knows", ["what it wrote", "what it read"])
async def test_a_writer_that_stood_still_between_decision_and_request_has_appended_nothing(
    storage: ObjectStorage, how: str, knows: str
) -> None:
    """One that has only read is overtaken by the owner, who begins no epoch in its place."""
    scribe = Scribe(SHARD)
    async with opened(storage) as before, opened(storage) as candidate:
        await append_all(before, [scribe.seal(2), scribe.seal(3)])
        is_owner = knows == "what it wrote"
        sleeper, own = (before, scribe) if is_owner else (candidate, scribe.rival(epoch=2))
        rival = scribe.rival(epoch=2 if is_owner else 1)

        def stand_still(name: str) -> None:
            if name == "objects.before_put":
                set_failpoint(None)
                aside(go_on(storage, rival, how))

        set_failpoint(stand_still)
        try:
            await refused(sleeper, own)
        finally:
            set_failpoint(None)
    await holds_only(storage, rival)


@pytest.mark.timeout(60)
async def test_a_process_that_was_stopped_before_its_request_has_appended_nothing(
    tmp_path: Path,
) -> None:
    storage, scribe = ObjectStorage(f"file://{tmp_path}/journals"), Scribe(SHARD)
    for _ in range(2):
        scribe.seal(2 + scribe.last // 2)
    rival = scribe.rival(epoch=2)
    words = [str(SLEEPER), storage.bucket.shown, SHARD]
    process = await asyncio.create_subprocess_exec(sys.executable, *words, stdout=PIPE)
    try:
        assert process.stdout is not None
        assert await process.stdout.readline() == b"stops\n"
        await go_on(storage, rival, "rolled")
        process.send_signal(signal.SIGCONT)
        assert await process.stdout.readline() == b"Fenced\n"
    finally:
        process.kill()
        await process.wait()
    await holds_only(storage, rival)


# -- what stays -----------------------------------------------------------------------------------


async def test_what_begins_an_epoch_stays_and_the_rest_is_rolled_up(
    storage: ObjectStorage,
) -> None:
    scribe = Scribe(SHARD)
    written = [scribe.seal() for _ in range(3)]
    for epoch, many in ((2, 1), (3, 6), (9, 10)):
        scribe.epoch = epoch
        written += [scribe.seal() for _ in range(many)]
    async with opened(storage) as journal:
        bodies = await append_all(journal, written)
        await tidy_up(storage, "rolled")
        assert await own_objects(storage.bucket) == [1, 4, 5, 11, *range(13 + ROLL, 21)]
        assert await _all(journal) == bodies
    async with opened(storage) as journal:
        assert await _all(journal) == bodies
        await tidy_up(storage, "pruned")
        assert await own_objects(storage.bucket) == [1, 4, 5, 11, 20]


async def _all(journal: JournalBackend) -> list[bytes]:
    found: list[bytes] = []
    while bodies := await journal.read(len(found), 3):
        found += bodies
    return found


@pytest.mark.parametrize("how", ["rolled", "pruned"])
async def test_tidying_up_that_is_cut_off_loses_nothing_and_frees_no_place(
    tmp_path: Path, how: str
) -> None:
    for point in count():
        storage, scribe = ObjectStorage(f"file://{tmp_path}/{point}"), Scribe(SHARD)
        async with opened(storage) as sleeper:
            await append_all(sleeper, [scribe.seal(2), scribe.seal(3)])
            rival = scribe.rival(epoch=2)
            async with opened(storage) as journal:
                await append_all(journal, [rival.seal() for _ in range(5 * ROLL)])
            is_done = await _tidied_up(storage, how, cut_off_at=point)
            await holds_only(storage, rival)
            await tidy_up(storage, how)
            await refused(sleeper, scribe)
        await holds_only(storage, rival)
        assert {1, 6} <= set(await own_objects(storage.bucket))
        if is_done:
            return


async def _tidied_up(storage: ObjectStorage, how: str, *, cut_off_at: int) -> bool:
    """False: it died at the failpoint of that number."""
    passed: list[str] = []

    def die(name: str) -> None:
        passed.append(name)
        if len(passed) == cut_off_at + 1:
            raise Interrupted(name)

    set_failpoint(die)
    try:
        await tidy_up(storage, how)
    except Interrupted:
        return False
    finally:
        set_failpoint(None)
    return True


# -- what an append costs -------------------------------------------------------------------------


async def test_an_owner_s_append_is_one_request(storage: ObjectStorage) -> None:
    bucket, scribe = CountedBucket(storage.bucket), Scribe(SHARD)
    journal = ObjectJournal(bucket, SHARD)
    await journal.open()
    await append_all(journal, [scribe.seal()])
    bucket.requests.clear()
    await append_all(journal, [scribe.seal() for _ in range(9)])
    assert bucket.requests == {"create": 9}
    await journal.open()
    await append_all(journal, [scribe.seal()])  # it looks where the journal ends, and at the floor
    bucket.requests.clear()
    await append_all(journal, [scribe.seal() for _ in range(9)])
    assert bucket.requests == {"create": 9}
    await journal.close()


async def test_who_did_not_begin_the_epoch_looks_at_the_floor_each_time(
    storage: ObjectStorage,
) -> None:
    bucket, scribe = CountedBucket(storage.bucket), Scribe(SHARD)
    async with opened(storage) as owner:
        await append_all(owner, [scribe.seal()])
    journal = ObjectJournal(bucket, SHARD)
    await journal.open()
    await append_all(journal, [scribe.seal()])
    bucket.requests.clear()
    await append_all(journal, [scribe.seal() for _ in range(3)])
    assert bucket.requests == {"create": 3, "keys": 3}
    await journal.close()


async def test_an_envelope_of_a_copy_is_one_request(storage: ObjectStorage) -> None:
    bucket, scribe = CountedBucket(storage.bucket), Scribe(SHARD)
    async with opened(storage) as owner:
        await append_all(owner, [scribe.seal()])
    journal = ObjectJournal(bucket, SHARD)
    await journal.open()
    await journal.extend([scribe.seal()], expected=1)
    bucket.requests.clear()
    await journal.extend([scribe.seal() for _ in range(9)], expected=2)
    assert bucket.requests == {"create": 9}
    await journal.close()
