"""What only a journal on NATS has: leaders that die, acknowledgements that get lost, streams that
somebody else made, messages that are too small."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterator
from itertools import count

import nats.errors
import pytest

from omnirelay.cli.free_ports import free_port
from omnirelay.model.errors import (
    Fenced,
    InvalidOption,
    OmniRelayError,
    OutcomeUnknown,
    SequenceTaken,
    TooLittleDurability,
    Unavailable,
)
from omnirelay.stores.nats import NatsJournal
from omnirelay.stores.nats_address import parse, token
from omnirelay.stores.nats_link import NatsLink, StoredMessage
from omnirelay.stores.nats_streams import journal_config
from omnirelay.stores.registry import open_address
from omnirelay.testing.envelopes import Scribe, scan
from omnirelay.testing.servers_nats import NatsServers, nats_servers

SHARD = "orders"
_numbers = count()


@pytest.fixture(scope="module")
def careless() -> Iterator[NatsServers]:
    """Syncs every two minutes, as NATS does unless told, and takes small messages only."""
    with nats_servers(sync="2m", payload="64KB") as servers:
        yield servers


@pytest.fixture
def url(nats_one: NatsServers) -> str:
    return nats_one.url(f"P{next(_numbers)}")


@pytest.fixture
async def journal(url: str) -> AsyncIterator[NatsJournal]:
    journal = NatsJournal(parse(url), SHARD)
    await journal.open()
    yield journal
    await journal.close()


async def append(journal: NatsJournal, scribe: Scribe, *counts: int) -> list[bytes]:
    bodies = []
    for number in counts:
        sealed = scribe.seal(number)
        await journal.append(sealed, expected=sealed.first - 1)
        bodies.append(sealed.body)
    return bodies


# -- appends whose outcome is in doubt ------------------------------------------------------------


async def test_an_append_whose_answer_got_lost_is_found_and_not_doubled(
    journal: NatsJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    scribe = Scribe(SHARD)
    bodies = await append(journal, scribe, 2)
    publish, tries = NatsLink.publish, []

    async def deaf(*args: object, **words: object) -> int:
        place = await publish(*args, **words)  # type: ignore[arg-type]
        tries.append(place)
        if len(tries) == 1:
            raise nats.errors.TimeoutError
        return place

    monkeypatch.setattr(NatsLink, "publish", deaf)
    bodies += await append(journal, scribe, 3, 1)
    assert await journal.read(0, 10) == bodies
    assert len(tries) == 2, "one whose answer was lost and one that was answered"


async def test_an_append_that_nobody_answers_is_unknown_in_bounded_time(
    journal: NatsJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def silent(*args: object, **words: object) -> int:
        raise nats.errors.TimeoutError

    monkeypatch.setattr("omnirelay.stores.nats.APPEND_S", 0.3)
    monkeypatch.setattr(NatsLink, "publish", silent)
    sealed = Scribe(SHARD).seal(2)
    with pytest.raises(OutcomeUnknown):
        await journal.append(sealed, expected=0)
    monkeypatch.undo()
    await journal.open()
    assert (await journal.head()).last == 0


async def test_a_writer_of_an_older_epoch_is_fenced_by_what_a_rival_wrote(
    journal: NatsJournal, url: str
) -> None:
    scribe, rival = Scribe(SHARD), NatsJournal(parse(url), SHARD)
    await append(journal, scribe, 2)
    await rival.open()
    bodies = await append(rival, scribe.rival(epoch=2), 1)
    stale = scribe.seal(1)
    with pytest.raises(Fenced):
        await journal.append(stale, expected=stale.first - 1)
    assert await journal.read(2, 10) == bodies
    await rival.close()


@pytest.mark.timeout(90)
async def test_a_leader_that_dies_under_appends_loses_nothing_that_was_acknowledged() -> None:
    with nats_servers(3) as servers:
        journal = NatsJournal(parse(servers.url("ORDERS", "&replicas=3")), SHARD)
        await journal.open()
        scribe = Scribe(SHARD)
        acknowledged: dict[int, str] = {}
        for number in range(60):
            if number == 20:
                servers.named(await leader_of(journal)).kill()
            await append_or_recover(journal, scribe, acknowledged)
        envelopes = await scan(journal, SHARD, limit=100)
        stored = {envelope.first: envelope.checksum for envelope in envelopes}
        assert len(acknowledged) >= 55
        assert acknowledged.items() <= stored.items()
        assert (await journal.durability()).survives_node_loss
        await journal.close()


async def leader_of(journal: NatsJournal) -> str:
    info = await journal._link.manager.stream_info(journal.address.stream)
    assert info.cluster is not None
    return str(info.cluster.leader)


async def append_or_recover(
    journal: NatsJournal, scribe: Scribe, acknowledged: dict[int, str]
) -> None:
    """As a shard does: after any failure it opens again and goes on from what it finds."""
    sealed = scribe.seal(2)
    try:
        await journal.append(sealed, expected=sealed.first - 1)
        acknowledged[sealed.first] = sealed.checksum
    except OmniRelayError:
        head = await reopened(journal)
        scribe.last, scribe.link = head


async def reopened(journal: NatsJournal) -> tuple[int, str]:
    until = time.monotonic() + 30
    while True:
        try:
            await journal.open()
            head = await journal.head()
            return head.last, head.checksum
        except Unavailable:
            assert time.monotonic() < until
            await asyncio.sleep(0.2)


# -- reading --------------------------------------------------------------------------------------


async def test_a_new_reader_finds_any_place_without_reading_all_before_it(
    journal: NatsJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    scribe = Scribe(SHARD)
    bodies = await append(journal, scribe, *[2] * 200)
    fetched: list[StoredMessage] = []
    batch = NatsLink.batch

    async def counted(*args: object, **words: object) -> list[StoredMessage]:
        found = await batch(*args, **words)  # type: ignore[arg-type]
        fetched.extend(found)
        return found

    monkeypatch.setattr(NatsLink, "batch", counted)
    for after in (1, 199, 200, 201, 398):
        reader = journal.reader()
        fetched.clear()
        assert await reader.read(after, 3) == bodies[after // 2 : after // 2 + 3]
        assert len(fetched) <= 8 + 3
        await reader.close()


async def test_an_envelope_larger_than_a_message_is_kept_in_pieces(careless: NatsServers) -> None:
    journal = NatsJournal(parse(careless.url("LARGE")), SHARD)
    await journal.open()
    scribe = Scribe(SHARD)
    envelopes = [scribe.seal(1), scribe.seal(3, text="x" * 100_000), scribe.seal(1)]
    for sealed in envelopes:
        await journal.append(sealed, expected=sealed.first - 1)
    assert await journal.read(0, 10) == [sealed.body for sealed in envelopes]
    info = await journal._link.manager.stream_info("LARGE_parts")
    assert info.state.messages > len(envelopes[1].body) // 65536
    assert await journal.prune(4, before_ms=1 << 50, limit=10) == 2
    info = await journal._link.manager.stream_info("LARGE_parts")
    assert info.state.messages == 0, "pieces go with their envelope"
    await journal.close()


@pytest.mark.parametrize("name", ["a", "A.b", "*", ">", "größe ☃", "x" * 500, "", "=-", "a=2Eb"])
def test_any_name_of_a_shard_is_one_word_of_a_subject(name: str) -> None:
    word = token(name)
    assert word
    assert len(word) < 200
    assert not set(word) & set(".*> \r\n\t")
    others = {
        token(other) for other in ("b", "a.b", "**", "x" * 501, "a.", "A=2Eb") if other != name
    }
    assert word not in others


# -- streams that somebody else made --------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"storage": "memory"}, "memory storage"),
        ({"max_age": 60.0}, "max_age"),
        ({"max_msgs": 1000}, "max_msgs"),
        ({"max_bytes": 1 << 20, "discard": "old"}, "max_bytes with discard old"),
        ({"max_msgs_per_subject": 5}, "max_msgs_per_subject"),
        ({"retention": "workqueue"}, "retention workqueue"),
        ({"deny_purge": True}, "deny_purge"),
        ({"allow_direct": False}, "allow_direct off"),
        ({"no_ack": True}, "no_ack"),
        ({"subjects": ["elsewhere.>"], "republish": None}, "elsewhere"),
    ],
)
async def test_a_stream_that_would_lose_something_is_refused_by_name(
    url: str, changes: dict[str, object], words: str
) -> None:
    address = parse(url)
    link = NatsLink(address)
    await link.open()
    config = journal_config(address, takes_batches=True).evolve(**changes)
    await link.manager.add_stream(config)
    await link.close()
    journal = NatsJournal(address, SHARD)
    with pytest.raises(InvalidOption, match=words) as caught:
        await journal.open()
    assert address.stream in caught.value.message
    await journal.close()


async def test_more_replicas_than_the_stream_or_the_servers_have_are_refused(
    journal: NatsJournal, url: str
) -> None:
    for address in (parse(f"{url}&replicas=3"), parse(url.replace("/P", "/Q") + "&replicas=3")):
        other = NatsJournal(address, SHARD)
        with pytest.raises(InvalidOption, match="replicas"):
            await other.open()
        await other.close()


# -- what it states -------------------------------------------------------------------------------


async def test_one_server_that_syncs_survives_power_loss_but_not_its_own(
    journal: NatsJournal, url: str
) -> None:
    stated = await journal.durability()
    assert (stated.survives_power_loss, stated.survives_node_loss) == (True, False)
    assert "sync_interval always" in stated.condition
    stated.require("power_loss", "nats")
    with pytest.raises(TooLittleDurability, match="1 replica"):
        stated.require("node_loss", "nats")
    unseen = NatsJournal(parse(url.partition("?")[0]), SHARD)
    await unseen.open()
    stated = await unseen.durability()
    assert not stated.survives_power_loss
    assert "?monitor=" in stated.condition
    await unseen.close()


async def test_a_server_that_syncs_now_and_then_does_not_survive_power_loss(
    careless: NatsServers,
) -> None:
    journal = NatsJournal(parse(careless.url("CARELESS")), SHARD)
    await journal.open()
    stated = await journal.durability()
    assert stated.survives_process_kill
    assert not stated.survives_power_loss
    assert "sync_interval: always" in stated.condition
    await journal.close()


# -- addresses and servers that are not there -----------------------------------------------------


@pytest.mark.parametrize(
    "url",
    [
        "nats:",
        "nats://",
        "nats://h",
        "nats://h/",
        "nats:///S",
        "nats://h:port/S",
        "nats://h,/S",
        "nats://h/S.T",
        "nats://h/S*",
        "nats://h/S/T",
        "nats://h/S#x",
        "nats://h/S?replicas=2",
        "nats://h/S?replicas=x",
        "nats://h/S?color=red",
        "nats://h/S?tls=off",
        "nats://joe:sesame@h/S T",
    ],
)
def test_an_address_that_cannot_work_is_refused_without_its_secrets(url: str) -> None:
    with pytest.raises(InvalidOption) as caught:
        open_address(url, SHARD)
    assert "sesame" not in caught.value.message


def test_an_address_names_servers_stream_and_wishes() -> None:
    address = parse("nats://joe:sesame@h1:4222,h2/S?replicas=3&monitor=http://h1:8222")
    assert address.servers == ("nats://joe:sesame@h1:4222", "nats://h2")
    assert (address.stream, address.replicas) == ("S", 3)
    assert address.shown == "nats://h1:4222,h2/S"
    assert parse("nats://h/S?tls=on").servers == ("tls://h",)


async def test_servers_that_are_not_there_are_named_in_bounded_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("omnirelay.stores.nats_link.CONNECT_S", 1.0)
    port = free_port()
    journal = NatsJournal(parse(f"nats://joe:sesame@127.0.0.1:{port}/S"), SHARD)
    began = time.monotonic()
    for act in (journal.open(), journal.reader().head()):
        with pytest.raises(Unavailable, match=f"127.0.0.1:{port}") as caught:
            await act
        assert "sesame" not in caught.value.message
    assert time.monotonic() - began < 4
    await journal.close()


async def test_a_place_taken_by_a_rival_is_named_with_where_the_journal_ends(
    journal: NatsJournal, url: str
) -> None:
    scribe, rival = Scribe(SHARD), NatsJournal(parse(url), SHARD)
    await append(journal, scribe, 2)
    await rival.open()
    twin = scribe.rival()
    await append(rival, twin, 4)
    late = scribe.seal(1)
    with pytest.raises(SequenceTaken, match="ends at 6"):
        await journal.append(late, expected=2)
    await rival.close()


async def test_a_message_that_is_no_envelope_is_called_damage(journal: NatsJournal) -> None:
    await journal._link.publish(
        journal.address.journal_subject(SHARD), json.dumps({}).encode(), headers={}, timeout_s=5.0
    )
    with pytest.raises(OmniRelayError, match="no envelope"):
        await journal.head()
