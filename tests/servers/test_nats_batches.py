"""Several envelopes at once to NATS: one batch under one condition, or one after another where the
stream takes no batches."""

from collections.abc import AsyncIterator
from itertools import count

import nats.errors
import pytest

from omnirelay.model.errors import OmniRelayError, OutcomeUnknown
from omnirelay.stores.nats import NatsJournal
from omnirelay.stores.nats_address import parse
from omnirelay.stores.nats_link import NatsLink
from omnirelay.stores.nats_streams import journal_config
from omnirelay.testing.envelopes import Scribe, scan
from omnirelay.testing.servers_nats import NatsServers, nats_servers
from tests.servers.test_nats_product import SHARD, leader_of, reopened

_numbers = count()
BATCH = "Nats-Batch-Id"


@pytest.fixture
def url(nats_one: NatsServers) -> str:
    return nats_one.url(f"T{next(_numbers)}")


@pytest.fixture
async def journal(url: str) -> AsyncIterator[NatsJournal]:
    journal = NatsJournal(parse(url), SHARD)
    await journal.open()
    yield journal
    await journal.close()


async def batches_of(journal: NatsJournal) -> list[str | None]:
    """The batch that each stored envelope came in."""
    stored = await journal._from(1, 99)
    return [message.headers.get(BATCH) for message in stored]


async def test_several_are_one_batch_and_the_next_ones_follow_it(journal: NatsJournal) -> None:
    scribe = Scribe(SHARD)
    written = [scribe.seal(2) for _ in range(9)]
    await journal.append(written[0], expected=0)
    await journal.extend(written[1:5], expected=2)
    await journal.extend(written[5:8], expected=10)
    await journal.append(written[8], expected=16)
    assert await journal.read(0, 99) == [sealed.body for sealed in written]
    found = await batches_of(journal)
    one, other = found[1], found[5]
    assert found == [None, *[one] * 4, *[other] * 3, None]
    assert len({None, one, other}) == 3


async def test_a_stream_that_takes_no_batches_gets_them_one_by_one(url: str) -> None:
    address, scribe = parse(url), Scribe(SHARD)
    link = NatsLink(address)
    await link.open()
    await link.manager.add_stream(journal_config(address, takes_batches=False))
    await link.close()
    journal = NatsJournal(address, SHARD)
    await journal.open()
    written = [scribe.seal(2) for _ in range(4)]
    await journal.extend(written, expected=0)
    assert await journal.read(0, 99) == [sealed.body for sealed in written]
    assert await batches_of(journal) == [None] * 4
    await journal.close()


async def test_a_batch_that_the_server_refuses_as_such_is_sent_one_by_one(
    journal: NatsJournal,
) -> None:
    """Somebody has forbidden batches since the stream was opened."""
    scribe = Scribe(SHARD)
    written = [scribe.seal(2) for _ in range(4)]
    manager, address = journal._link.manager, journal.address
    await manager.update_stream(journal_config(address, takes_batches=False))
    await journal.extend(written, expected=0)
    assert await journal.read(0, 99) == [sealed.body for sealed in written]
    assert await batches_of(journal) == [None] * 4


async def test_a_batch_whose_answer_got_lost_is_unknown_and_found_whole(
    journal: NatsJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish = NatsLink.publish

    async def deaf(*args: object, **words: object) -> int:
        await publish(*args, **words)  # type: ignore[arg-type]
        raise nats.errors.TimeoutError

    scribe = Scribe(SHARD)
    written = [scribe.seal(2) for _ in range(5)]
    monkeypatch.setattr(NatsLink, "publish", deaf)
    with pytest.raises(OutcomeUnknown):
        await journal.extend(written, expected=0)
    monkeypatch.undo()
    await journal.open()
    assert await journal.read(0, 99) == [sealed.body for sealed in written]
    await journal.append(scribe.seal(), expected=10)


@pytest.mark.timeout(90)
async def test_leaders_that_die_under_batches_lose_nothing_that_was_acknowledged() -> None:
    """`scan` finds any hole: each envelope names the one before it."""
    with nats_servers(3) as servers:
        journal = NatsJournal(parse(servers.url("ORDERS", "&replicas=3")), SHARD)
        await journal.open()
        scribe = Scribe(SHARD)
        acknowledged: set[str] = set()
        for _ in range(2):
            dead = servers.named(await leader_of(journal))
            for number in range(20):
                if number == 5:
                    dead.kill()
                acknowledged |= await extend_or_recover(journal, scribe)
            dead.start()
        stored = {envelope.checksum for envelope in await scan(journal, SHARD, limit=100)}
        await journal.close()
    assert len(acknowledged) >= 6 * 36
    assert acknowledged <= stored


async def extend_or_recover(journal: NatsJournal, scribe: Scribe) -> set[str]:
    """As a mirror does. Returns what was acknowledged."""
    several = [scribe.seal(2) for _ in range(6)]
    try:
        await journal.extend(several, expected=several[0].first - 1)
    except OmniRelayError:
        scribe.last, scribe.link = await reopened(journal)
        return set()
    return {sealed.checksum for sealed in several}
