"""What a store behind a network meets and a file does not: a server that dies, hangs, is not there,
refuses us, or serves others as well."""

import asyncio
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from functools import partial

import pytest

from omnirelay.journal.backend import JournalBackend, JournalReader
from omnirelay.model.errors import InvalidOption, OmniRelayError, OutcomeUnknown, Unavailable
from omnirelay.stores import hub_link, postgres_link, redis_link
from omnirelay.stores.address import masked
from omnirelay.stores.registry import open_address
from omnirelay.testing.envelopes import Scribe, scan
from omnirelay.testing.store_medium import SHARD, append_all
from tests.servers.served import SERVED, AnyServer, lone_server

SECRET = "pa-55-word"


@pytest.fixture(params=sorted(SERVED))
def product(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def url(product: str, request: pytest.FixtureRequest) -> str:
    return SERVED[product](request.getfixturevalue)


@pytest.fixture
def server(product: str) -> Iterator[AnyServer]:
    with lone_server(product) as started:
        yield started


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[JournalBackend]:
    journal = open_address(url, SHARD).journal
    try:
        await journal.open()
        yield journal
    finally:
        await journal.close()


async def append_until_it_fails(journal: JournalBackend, scribe: Scribe) -> OmniRelayError:
    """`scribe` is left as it was at the last append that was acknowledged."""
    while True:
        trial = scribe.rival()
        sealed = trial.seal(3)
        try:
            await journal.append(sealed, expected=sealed.first - 1)
        except OmniRelayError as error:
            return error
        scribe.last, scribe.link = trial.last, trial.link


# -- servers that die or hang -------------------------------------------------------------------


@pytest.mark.timeout(60)
async def test_after_a_kill_in_an_append_the_envelope_is_whole_or_not_there(
    product: str, server: AnyServer
) -> None:
    url, scribe = server.url("kills"), Scribe(SHARD)
    for delay_s in (0.05, 0.08, 0.11):
        async with opened(url) as journal:
            head = await journal.head()
            scribe.last, scribe.link, scribe.epoch = head.last, head.checksum, head.epoch + 1
            appending = asyncio.create_task(append_until_it_fails(journal, scribe))
            await asyncio.sleep(delay_s)  # long enough for some, wherever it cuts
            server.kill()
            error = await appending
        # gRPC can tell that a call never left; the others have written it to a socket by then.
        assert isinstance(error, Unavailable if product == "hub" else OutcomeUnknown), error
        server.start_serving()
        async with opened(url) as journal:
            envelopes = await scan(journal, SHARD)
        assert envelopes[-1].last in (scribe.last, scribe.last + 3)
        assert scribe.link in [envelope.checksum for envelope in envelopes[-2:]]


@pytest.mark.timeout(60)
async def test_a_server_that_hangs_leaves_the_outcome_unknown_in_bounded_time(
    server: AnyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for link in (hub_link, postgres_link, redis_link):
        monkeypatch.setattr(link, "ANSWER_S", 0.5)
    scribe = Scribe(SHARD)
    async with opened(server.url("hangs")) as journal:
        before = await append_all(journal, [scribe.seal(2)])
        sealed = scribe.seal(2)
        server.freeze()
        try:
            async with asyncio.timeout(5):
                with pytest.raises(OutcomeUnknown):
                    await journal.append(sealed, expected=2)
        finally:
            server.thaw()
    async with opened(server.url("hangs")) as journal:
        assert await journal.read(0, 10) in (before, [*before, sealed.body])


@pytest.mark.timeout(60)
async def test_whoever_waits_finds_the_server_again(server: AnyServer) -> None:
    url, scribe = server.url("waits"), Scribe(SHARD)
    async with opened(url) as journal:
        await append_all(journal, [scribe.seal(2)])
        reader = journal.reader()
        waiting = asyncio.create_task(_wait_until_longer(reader, 2))
        await asyncio.sleep(0.05)
        server.kill()
        await asyncio.to_thread(server.start_serving)
        await journal.open()
        await append_all(journal, [scribe.seal(2)])
        async with asyncio.timeout(10):
            await waiting
        await reader.close()


async def _wait_until_longer(reader: JournalReader, after: int) -> None:
    while True:
        with suppress(Unavailable):
            if await reader.read(after, 1):
                return
        await reader.wait_for_more(after, 20.0)


async def test_a_reader_that_waits_answers_meanwhile(url: str) -> None:
    async with opened(url) as journal:
        await append_all(journal, [Scribe(SHARD).seal(2)])
        reader = journal.reader()
        waiting = asyncio.create_task(reader.wait_for_more(2, 20.0))
        await asyncio.sleep(0.05)
        async with asyncio.timeout(5):
            assert (await reader.head()).last == 2
        waiting.cancel()
        with suppress(asyncio.CancelledError):
            await waiting
        await reader.close()


# -- servers that are not there, or not for us --------------------------------------------------


def _address(product: str, place: str) -> str:
    """A hub takes no password in its address."""
    return f"hub://{place}" if product == "hub" else f"{product}://me:{SECRET}@{place}/0"


async def test_a_server_that_is_not_there_is_named_without_the_password(product: str) -> None:
    with socket.socket() as taken:  # bound and not listening: nobody else is there either
        taken.bind(("127.0.0.1", 0))
        place = f"127.0.0.1:{taken.getsockname()[1]}"
        journal = open_address(_address(product, place), SHARD).journal
        async with asyncio.timeout(5):
            with pytest.raises(Unavailable, match="cannot be reached") as caught:
                await journal.open()
        await journal.close()
    assert place in caught.value.message
    assert SECRET not in caught.value.message
    assert not isinstance(caught.value, OutcomeUnknown)


async def test_a_server_that_says_nothing_is_given_up(
    product: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_link, "CONNECT_S", 1)
    for link in (hub_link, redis_link):
        monkeypatch.setattr(link, "ANSWER_S", 1.0)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = _address(product, f"127.0.0.1:{silent.getsockname()[1]}")
        journal = open_address(url, SHARD).journal
        async with asyncio.timeout(10):
            with pytest.raises(Unavailable) as caught:
                await journal.open()
        await journal.close()
    assert SECRET not in caught.value.message


@pytest.mark.parametrize(
    "rest",
    ["127.0.0.1:port/0", "127.0.0.1:1/0?surprise=1", "[::1/0", "u:p%zz@127.0.0.1/0?schema=A b"],
)
def test_an_address_that_cannot_be_one_is_refused_without_its_password(
    product: str, rest: str
) -> None:
    with pytest.raises(InvalidOption) as caught:
        open_address(f"{product}://{rest}", SHARD)
    assert "p%zz" not in caught.value.message


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgres://me:a@h/db", "postgres://me:***@h/db"),
        ("postgres://me:a/b@h/db", "postgres://me:***@h/db"),
        ("postgres://me:a@b@h/db", "postgres://me:***@h/db"),
        ("redis://:a@h:1/0?prefix=x", "redis://:***@h:1/0?prefix=x"),
        ("postgres://h/db?user=me&password=a&x=1", "postgres://h/db?user=me&password=***&x=1"),
        ("postgres://h/db?sslpassword=a", "postgres://h/db?sslpassword=***"),
        ("postgres://me@h/db?schema=s", "postgres://me@h/db?schema=s"),
        ("redis://h/0?prefix=a@b", "redis://h/0?prefix=a@b"),
        ("sqlite:///a@b.db", "sqlite:///a@b.db"),
        ("memory:", "memory:"),
    ],
)
def test_an_address_is_shown_without_its_password(url: str, shown: str) -> None:
    assert masked(url) == shown


def test_a_missing_package_is_named_with_its_extra(
    product: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    package, extra = {"hub": ("grpc", "grpc"), "postgres": ("psycopg", "postgres")}.get(
        product, (product, product)
    )
    ours = (f"omnirelay.stores.{product}", "omnirelay.transports.grpc")
    for name in [name for name in sys.modules if name.startswith(ours)]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(InvalidOption, match=rf"pip install 'omnirelay\[{extra}\]'"):
        open_address(f"{product}://h", SHARD)


# -- servers that serve others as well ----------------------------------------------------------


@pytest.mark.timeout(60)
async def test_processes_that_race_leave_one_order(url: str) -> None:
    command = [sys.executable, "-m", "tests.servers.racer", url, SHARD, "40"]
    run = partial(subprocess.run, command, stdout=subprocess.PIPE, text=True, timeout=50)
    racers = await asyncio.gather(*(asyncio.to_thread(run) for _ in range(2)))
    assert [racer.stdout for racer in racers] == ["40\n", "40\n"]
    async with opened(url) as journal:
        assert len(await scan(journal, SHARD, limit=100)) == 80


async def test_a_thousand_appends_are_read_in_their_order_while_they_come(url: str) -> None:
    scribe = Scribe(SHARD)
    envelopes = [scribe.seal() for _ in range(1000)]
    async with opened(url) as journal:
        reader = journal.reader()
        writing = asyncio.create_task(append_all(journal, envelopes))
        seen: list[bytes] = []
        while len(seen) < len(envelopes):
            await reader.wait_for_more(len(seen), 5.0)
            seen += await reader.read(len(seen), 100)
        await writing
        await reader.close()
    assert seen == [sealed.body for sealed in envelopes]


async def test_an_append_wakes_a_waiter_at_once(url: str) -> None:
    scribe, took_s = Scribe(SHARD), []
    loop = asyncio.get_running_loop()
    async with opened(url) as journal, opened(url) as other:
        await append_all(journal, [scribe.seal()])
        reader = other.reader()
        for _ in range(7):
            waiting = asyncio.create_task(reader.wait_for_more(scribe.last, 10.0))
            await asyncio.sleep(0.03)  # it waits by now
            began = loop.time()
            await append_all(journal, [scribe.seal()])
            await waiting
            took_s.append(loop.time() - began)
        await reader.close()
    assert sorted(took_s)[3] < 0.2, took_s
