"""Opening and closing: one owner a file, the reason when it cannot be, nothing after the end."""

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import omnirelay
from omnirelay import Closed, Corrupt, JournalOwned, OmniRelayError, Relay
from omnirelay.model.errors import InvalidOption, TooLittleDurability, Unavailable
from omnirelay.sdk.engine import Engine
from tests.embedded.places import ONE_WIRE, Place
from tests.embedded.signals import a_turn_of_the_loop

pytestmark = pytest.mark.places(*ONE_WIRE)

OWNER = """
import sys, omnirelay
with omnirelay.connect_sync(sys.argv[1]) as relay:
    relay.enqueue("table", "theirs")
    print("mine", flush=True)
    sys.stdin.read()
"""


@contextmanager
def owned_by_another_process(url: str) -> Iterator[int]:
    command = [sys.executable, "-c", OWNER, url]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as owner:
        try:
            assert owner.stdout is not None
            assert owner.stdout.readline() == b"mine\n"
            yield owner.pid
        finally:
            owner.kill()


async def test_a_file_of_another_process_is_refused_with_its_pid(file_url: str) -> None:
    with owned_by_another_process(file_url) as pid:
        with pytest.raises(JournalOwned, match=f"process {pid}") as refused:
            await omnirelay.connect(file_url)
        assert refused.value.pid == pid
        with pytest.raises(JournalOwned):
            omnirelay.connect_sync(file_url)
    async with omnirelay.connect(file_url) as relay:  # a killed owner owns nothing
        assert (await relay.lease()).resource_id == "theirs"


async def test_one_process_opens_a_file_once(file_url: str) -> None:
    async with omnirelay.connect(file_url):
        with pytest.raises(JournalOwned, match=f"process {os.getpid()}"):
            await omnirelay.connect(file_url)


async def test_a_queue_that_cannot_open_says_why_instead_of_trying_for_ever(
    tmp_path: Path,
) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "text").write_text("not a database, by far" * 100)
    for name, why in (
        ("missing/leases.db", "does not exist"),
        ("folder", "is a folder"),
        ("text", "not a database"),
    ):
        with pytest.raises((InvalidOption, Corrupt), match=why):
            await omnirelay.connect(f"sqlite:///{tmp_path}/{name}")


async def test_a_first_failure_that_might_pass_is_told_too(
    file_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from omnirelay.stores.sqlite import SqliteJournal

    async def locked(self: SqliteJournal) -> None:
        raise Unavailable("locked by another program")

    monkeypatch.setattr(SqliteJournal, "open", locked)
    with pytest.raises(Unavailable, match="locked"):
        await omnirelay.connect(file_url)
    monkeypatch.undo()
    await (await omnirelay.connect(file_url)).close()


async def test_a_journal_that_survives_too_little_is_refused(file_url: str) -> None:
    with pytest.raises(TooLittleDurability, match="memory"):
        await omnirelay.connect("memory:", require="process_kill")
    async with omnirelay.connect(file_url, require="process_kill"):
        pass
    with pytest.raises(TooLittleDurability):
        await omnirelay.connect(file_url, require="node_loss")


async def test_a_connect_that_nobody_waits_for_frees_its_file(
    file_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, may_open, closed = threading.Event(), threading.Event(), threading.Event()
    open_engine, close_engine = Engine.open, Engine.close

    def slow_open(url: str, **settings: Any) -> Engine:
        begun.set()
        assert may_open.wait(10)
        return open_engine(url, **settings)

    def noted_close(engine: Engine) -> None:
        close_engine(engine)
        closed.set()

    monkeypatch.setattr(Engine, "open", slow_open)
    monkeypatch.setattr(Engine, "close", noted_close)
    opening = asyncio.create_task(omnirelay.connect(file_url).open())
    assert await asyncio.to_thread(begun.wait, 10)
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    may_open.set()
    assert await asyncio.to_thread(closed.wait, 10)
    monkeypatch.undo()
    await (await omnirelay.connect(file_url)).close()


async def test_what_connect_returns_can_be_entered_or_awaited(place: Place) -> None:
    async with place.connect(peer_id="w") as relay:
        assert relay.peer_id == "w"
    connecting = place.connect(peer_id="w")
    for _ in range(2):
        relay = await connecting
        assert relay.peer_id == "w"
        await relay.close()


# -- after the end ------------------------------------------------------------------------------


async def nothing(events: object) -> None:
    return None


AFTERWARDS: dict[str, Callable[[Relay], Any]] = {
    "enqueue": lambda r: r.enqueue("table", "a"),
    "enqueue_many": lambda r: r.enqueue_many([omnirelay.Payload("table", "a")]),
    "lease": lambda r: r.lease().take(),
    "lease_many": lambda r: r.lease_many(1, wait=10),
    "stats": lambda r: r.stats(),
    "inspect": lambda r: r.inspect(1),
    "drain": lambda r: r.drain(),
    "restore": lambda r: r.restore([]),
    "dead_letters": lambda r: r.dead_letters(),
    "redrive": lambda r: r.redrive(),
    "purge": lambda r: r.purge(),
    "events": lambda r: anext(r.events(0)),
    "events without follow": lambda r: anext(r.events(0, follow=False)),
    "follow": lambda r: asyncio.to_thread(r.follow, "x", nothing),
    "unfollow": lambda r: asyncio.to_thread(r.unfollow, "x"),
    "followers": lambda r: asyncio.to_thread(r.followers),
}


@pytest.fixture
async def closed(place: Place) -> Relay:
    relay = await place.connect()
    relay.follow("x", nothing)
    await relay.close()
    return relay


@pytest.mark.parametrize("call", AFTERWARDS.values(), ids=AFTERWARDS.keys())
async def test_a_closed_relay_says_so(closed: Relay, call: Callable[[Relay], Any]) -> None:
    with pytest.raises(Closed, match="closed"):
        await call(closed)


async def test_closing_twice_is_closing_once(closed: Relay) -> None:
    await closed.close()


async def test_a_lease_of_a_closed_relay_cannot_be_ended(place: Place) -> None:
    relay = await place.connect()
    await relay.enqueue("table", "a")
    lease = await relay.lease()
    await relay.close()
    for end in (lease.complete, lease.fail, lease.release):
        with pytest.raises(Closed):
            await end()


async def test_closing_answers_whoever_still_waits(place: Place) -> None:
    relay = await place.connect()
    waiting = [asyncio.create_task(relay.lease_many(1, wait=60)) for _ in range(3)]
    await a_turn_of_the_loop()
    await relay.stats()
    await relay.close()
    outcomes = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [Closed] * 3


async def test_what_was_acknowledged_before_the_close_is_there_after_it(file_url: str) -> None:
    relay = await omnirelay.connect(file_url)
    calls = [asyncio.create_task(relay.enqueue("table", f"t{n}")) for n in range(50)]
    await a_turn_of_the_loop()
    await relay.close()
    outcomes = await asyncio.gather(*calls, return_exceptions=True)
    accepted = {one.sequence_id for one in outcomes if isinstance(one, omnirelay.Accepted)}
    assert all(isinstance(one, omnirelay.Accepted | OmniRelayError) for one in outcomes)
    async with omnirelay.connect(file_url) as relay:
        found = {lease.sequence_id for lease in await relay.lease_many(100)}
    assert accepted <= found


def test_a_program_that_just_ends_loses_nothing_acknowledged(tmp_path: Path) -> None:
    program = (
        "import sys, omnirelay\n"
        "relay = omnirelay.connect_sync(sys.argv[1])\n"
        "relay.enqueue('table', 'a')\n"
    )
    url = f"sqlite:///{tmp_path}/leases.db"
    ended = subprocess.run([sys.executable, "-c", program, url], timeout=15, check=False)
    assert ended.returncode == 0
    with omnirelay.connect_sync(url) as relay:
        assert relay.lease().take().resource_id == "a"
