"""What a hub does with what it is sent: large and small, early and late, good and bad."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from omnirelay.journal.backend import JournalBackend, SnapshotRef
from omnirelay.journal.format import Sealed
from omnirelay.model import limits
from omnirelay.model.errors import (
    OutcomeUnknown,
    Overloaded,
    ResourceExhausted,
    TooLarge,
    Unavailable,
)
from omnirelay.stores import hub_link
from omnirelay.stores.registry import open_address
from omnirelay.testing.envelopes import Scribe, scan
from omnirelay.testing.servers_hub import HubHost
from omnirelay.testing.store_medium import SHARD, append_all
from omnirelay.transports.proto import replication_pb2 as pb
from tests.wire.hub_raw import RawHub
from tests.wire.proxies import proxied
from tests.wire.real_node import node


@pytest.fixture
def url(hubs: HubHost) -> str:
    return hubs.fresh()


@pytest.fixture
async def journal(url: str) -> AsyncIterator[JournalBackend]:
    found = open_address(url, SHARD).journal
    await found.open()
    yield found
    await found.close()


async def test_what_is_larger_than_a_message_goes_through_whole(journal: JournalBackend) -> None:
    scribe, text = Scribe(SHARD), "x" * (5 * limits.HUB_PIECE_BYTES_MAX // 2)
    envelopes = [scribe.seal(), scribe.seal(text=text), scribe.seal(), scribe.seal(2)]
    bodies = await append_all(journal, envelopes)
    part = text.encode() + bytes(range(256))
    await journal.write_part(scribe.last, 0, part)
    await journal.finish_snapshot(SnapshotRef(scribe.last, 1, scribe.link, 5, 1, "sum"))
    assert await journal.read(0, 10) == bodies
    assert await journal.read_part(scribe.last, 0) == part


async def test_a_lost_answer_leaves_the_outcome_unknown_and_nothing_is_asked_twice(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub_link, "ANSWER_S", 1.0)
    scribe = Scribe(SHARD)
    async with proxied(url) as proxy:
        journal = open_address(proxy.url, SHARD).journal
        await journal.open()
        bodies = await append_all(journal, [scribe.seal(2)])
        for lose in (proxy.hold_back, proxy.cut):
            sealed = scribe.seal(3)
            appending = asyncio.create_task(journal.append(sealed, expected=sealed.first - 1))
            proxy.hold_back()
            await _until_longer(url, sealed.last)
            lose()
            with pytest.raises(OutcomeUnknown):
                await appending
            proxy.cut()
            bodies.append(sealed.body)
            await journal.open()
            assert await journal.read(0, 10) == bodies
        await journal.close()


async def _until_longer(url: str, last: int) -> None:
    reader = open_address(url, SHARD).journal
    async with asyncio.timeout(5):
        while (await reader.head()).last < last:
            await reader.wait_for_more(last - 1, 5.0)
    await reader.close()


async def test_a_hub_that_is_far_away_is_reached_all_the_same(url: str) -> None:
    async with proxied(url) as proxy:
        proxy.delay_s = 0.4  # as long as a handshake over half the world
        journal = open_address(proxy.url, SHARD).journal
        await journal.open()
        await append_all(journal, [Scribe(SHARD).seal()])
        await journal.close()


async def test_a_subscriber_in_any_language_resumes_where_it_was(
    url: str, journal: JournalBackend
) -> None:
    scribe = Scribe(SHARD)
    bodies = await append_all(journal, [scribe.seal(2) for _ in range(5)])
    async with RawHub(url) as raw:
        call = raw.hear("Subscribe", pb.SubscribeRequest(shard=SHARD, from_sequence=4))
        seen = list((await call.read()).envelopes)
        assert seen == bodies[1:]  # the envelope that holds 4 comes whole
        bodies += await append_all(journal, [scribe.seal()])
        assert list((await call.read()).envelopes) == bodies[5:]
        call.cancel()
        position = pb.CheckpointRequest(shard=SHARD, follower="lake", sequence=11)
        assert (await raw.ask("Checkpoint", position)).sequence == 11
        bodies += await append_all(journal, [scribe.seal()])
        stands = await raw.ask("Checkpoint", pb.CheckpointRequest(shard=SHARD, follower="lake"))
        again = pb.SubscribeRequest(shard=SHARD, from_sequence=stands.sequence + 1, follow=False)
        call = raw.hear("Subscribe", again)
        assert [body async for one in call for body in one.envelopes] == bodies[6:]
    checkpoints = open_address(url, SHARD).checkpoints
    assert await checkpoints.slowest(SHARD) == 11
    await checkpoints.close()


async def test_a_subscriber_that_does_not_read_holds_nobody_up_and_misses_nothing(
    url: str, journal: JournalBackend
) -> None:
    scribe = Scribe(SHARD)
    async with RawHub(url) as raw, asyncio.timeout(15):
        call = raw.hear("Subscribe", pb.SubscribeRequest(shard=SHARD, from_sequence=1))
        bodies = await append_all(journal, [scribe.seal(text="y" * 500_000) for _ in range(24)])
        assert len(await journal.read(scribe.last - 1, 1)) == 1  # another reader is served
        seen: list[bytes] = []
        while len(seen) < len(bodies):
            seen += (await call.read()).envelopes
        call.cancel()
    assert seen == bodies


# -- bad input ----------------------------------------------------------------------------------


def _asked(sealed: Sealed, **changed: object) -> pb.AppendRequest:
    named = {"shard": SHARD, "expected": sealed.first - 1, "body": sealed.body, **changed}
    return pb.AppendRequest(**named)  # type: ignore[arg-type]


BAD: dict[str, pb.AppendRequest | bytes] = {
    "no shard": _asked(Scribe(SHARD).seal(), shard=""),
    "a shard of too many characters": _asked(Scribe(SHARD).seal(), shard="x" * 600),
    "another shard's envelope": _asked(Scribe("other").seal()),
    "no body": _asked(Scribe(SHARD).seal(), body=b""),
    "a body that is no envelope": _asked(Scribe(SHARD).seal(), body=b"{}" * 40),
    "a body cut short": _asked(Scribe(SHARD).seal(), body=Scribe(SHARD).seal().body[:-1]),
    "a flipped bit": _asked(
        Scribe(SHARD).seal(), body=Scribe(SHARD).seal().body.replace(b"node-1", b"node-2")
    ),
    "another place than it says": _asked(Scribe(SHARD).seal(), expected=7),
    "a place before the first": _asked(Scribe(SHARD).seal(), expected=-1),
    "bytes that are no message": b"\xff\xff\xff\xff",
}


async def test_an_append_that_cannot_be_meant_is_refused_and_changes_nothing(
    url: str, journal: JournalBackend
) -> None:
    bodies = await append_all(journal, [Scribe(SHARD).seal()])
    async with RawHub(url) as raw:
        for what, request in BAD.items():
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await raw.ask("Append", request)
            assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT, (what, caught.value)
            assert caught.value.details(), what
        assert await journal.read(0, 10) == bodies


async def test_what_is_too_large_or_unknown_is_named_and_the_hub_lives(
    url: str, journal: JournalBackend
) -> None:
    scribe = Scribe(SHARD)
    async with RawHub(url) as raw:
        large = pb.AppendRequest(shard=SHARD, body=b"x" * (limits.MESSAGE_BYTES_MAX + 1))
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await raw.ask("Append", large)
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        unknown: Any = raw.channel.unary_unary("/omnirelay.v1.ReplicationHub/Explode")
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await unknown(b"", timeout=5)
        assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED
    await append_all(journal, [scribe.seal(2)])
    assert len(await scan(journal, SHARD)) == 1


NO_HUB = r"is no omnirelay\.v1\.ReplicationHub: start that node with --hub, or upgrade the older"


async def test_a_node_that_is_no_hub_says_so() -> None:
    async with node() as opened:
        journal = open_address(opened.urls["grpc"].replace("grpc", "hub"), SHARD).journal
        with pytest.raises(Unavailable, match=NO_HUB):
            await journal.open()
        await journal.close()


async def test_a_hub_of_a_later_protocol_is_left_alone() -> None:
    heard: list[str] = []

    def opens(method: str) -> Any:  # Any: the stubs leave the messages open
        return grpc.unary_unary_rpc_method_handler(lambda *_: heard.append(method))

    server = grpc.aio.server()
    later = {name: opens(name) for name in ("Open", "Head", "Append")}
    server.add_registered_method_handlers("omnirelay.v2.ReplicationHub", later)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    journal = open_address(f"hub://127.0.0.1:{port}", SHARD).journal
    reader = journal.reader()
    for ask in (journal.open, reader.head):
        with pytest.raises(Unavailable, match=NO_HUB):
            await ask()
    await reader.close()
    await journal.close()
    await server.stop(None)
    assert heard == []


# -- bounds -------------------------------------------------------------------------------------


async def test_a_hub_that_has_enough_says_so_and_nothing_happens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "HUB_SHARDS_MAX", 2)
    monkeypatch.setattr(limits, "HUB_SUBSCRIPTIONS_MAX", 1)
    async with node(hub=True, journal=None, data=str(tmp_path)) as opened:
        url = opened.urls["grpc"].replace("grpc", "hub")
        one, two, three = (open_address(url, name).journal for name in "abc")
        await one.open()
        await two.open()
        with pytest.raises(ResourceExhausted, match="keeps 2 shards"):
            await three.open()
        sealed = Scribe("a").seal(2)
        with monkeypatch.context() as less:
            less.setattr(limits, "HUB_WAITING_MAX", 0)
            with pytest.raises(Overloaded, match="slow down"):
                await one.append(sealed, expected=0)
            less.setattr(limits, "HUB_BODY_BYTES_MAX", 10)
            with pytest.raises(TooLarge, match="at most 10 bytes"):
                await one.append(sealed, expected=0)
        assert (await one.head()).last == 0
        await one.append(sealed, expected=0)
        async with RawHub(url) as raw:
            follow = pb.SubscribeRequest(shard="a", from_sequence=1)
            first = raw.hear("Subscribe", follow)
            assert list((await first.read()).envelopes) == [sealed.body]
            second = raw.hear("Subscribe", follow)
            with pytest.raises(grpc.aio.AioRpcError, match="serves 1 subscriptions already"):
                await second.read()
            first.cancel()
        for journal in (one, two, three):
            await journal.close()


async def test_a_stopping_hub_sends_its_subscribers_away(tmp_path: Path) -> None:
    async with node(hub=True, journal=None, data=str(tmp_path)) as opened:
        raw = RawHub(opened.urls["grpc"])
        call = raw.hear("Subscribe", pb.SubscribeRequest(shard="a", from_sequence=1, bodies=False))
        assert (await call.read()).last_sequence == 0
    with pytest.raises(grpc.aio.AioRpcError, match="the hub is stopping"):
        await call.read()
    await raw.close()
