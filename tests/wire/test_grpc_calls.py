"""Calls over gRPC as other people's programs make them."""

import asyncio
from typing import Any

import grpc
import grpc.aio
import msgspec
import pytest

from omnirelay.model.errors import (
    StaleToken,
)
from omnirelay.rpc.meta import Request
from omnirelay.transports.proto import resource_lease_pb2 as pb
from tests.wire.grpc_served import TYPED, Node, served
from tests.wire.http_echo import soon


async def ask(node: Node, verb: str, message: Any, answer: Any, **metadata: str) -> Any:
    """By the messages of the definition alone. Any: messages."""
    pairs = [(name.replace("_", "-"), value) for name, value in metadata.items()]
    async with node.channel() as channel:
        method: Any = channel.unary_unary(f"{TYPED}/{verb}", None, answer.FromString)
        return await method(message.SerializeToString(), metadata=pairs, timeout=8)


async def test_a_whole_cycle_by_the_definition_alone() -> None:
    async with served() as node:
        payload = pb.Payload(resource_type="table", resource_id="orders", body=b"vacuum")
        put = await ask(node, "Enqueue", pb.EnqueueRequest(payload=payload), pb.EnqueueResponse)
        lease = await ask(node, "Lease", pb.LeaseRequest(peer_id="w"), pb.LeaseResponse)
        held = pb.TokenRequest(ownership_token=lease.ownership_token)
        beat = await ask(node, "Heartbeat", held, pb.HeartbeatResponse)
        done = await ask(node, "Complete", held, pb.TokenResponse)
        stats = await ask(node, "Stats", pb.StatsRequest(), pb.StatsResponse)
    assert (put.sequence_id, put.duplicate, put.stats.pending_count) == (1, False, 1)
    assert (lease.payload.body, lease.owner_peer_id, lease.attempt) == (b"vacuum", "w", 1)
    assert beat.expires_at.ToMilliseconds() >= lease.expires_at.ToMilliseconds()
    assert done.success
    assert (stats.stats.pending_count, stats.stats.active_lease_count) == (0, 0)


async def test_nothing_to_lease_is_an_answer_without_a_token_and_a_word_in_the_trailers() -> None:
    async with served() as node, node.channel() as channel:
        method: Any = channel.unary_unary(f"{TYPED}/Lease", None, pb.LeaseResponse.FromString)
        call = method(b"", timeout=8)
        assert not (await call).HasField("ownership_token")
        assert ("rpc-empty", "true") in list(await call.trailing_metadata())


async def test_a_refusal_has_a_status_a_message_and_its_facts_in_the_trailers() -> None:
    token = pb.Token(sequence_id=9, attempt=1, lease_id="00000000-0000-0000-0000-000000000009")
    async with served() as node:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await ask(node, "Complete", pb.TokenRequest(ownership_token=token), pb.TokenResponse)
    trailers = dict(refused.value.trailing_metadata())
    body = msgspec.json.decode(trailers["rpc-error-bin"])
    assert refused.value.code() is grpc.StatusCode.NOT_FOUND
    assert "item 9" in (refused.value.details() or "")
    assert trailers["rpc-status"] == "NOT_FOUND"
    assert trailers["rpc-error-code"] == body["code"] == "error.resourcelease.unknown_token"
    assert body["details"] == {"sequenceId": 9}


async def test_metadata_names_the_queue() -> None:
    async with served() as node:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await ask(node, "Stats", pb.StatsRequest(), pb.StatsResponse, rpc_namespace="other")
    assert refused.value.code() is grpc.StatusCode.UNIMPLEMENTED
    assert "other::stats" in (refused.value.details() or "")


async def test_json_procedures_are_called_by_their_path() -> None:
    async with served() as node, node.channel() as channel:
        say: Any = channel.unary_unary("/echo/say")
        call = say(b'{"text":"hi"}', metadata=[("rpc-shard-key", "k"), ("rpc-caller", "me")])
        assert await call == b'{"text":"hi"}'
        trailers = dict(await call.trailing_metadata())
        meta = node.echo.metas[0]
    assert (meta.procedure, meta.transport, meta.encoding) == ("echo::say", "grpc", "json")
    assert (meta.shard_key, meta.caller, meta.address) == ("k", "me", "127.0.0.1")
    assert (trailers["rpc-encoding"], trailers["rpc-shard-key"]) == ("json", "k")


async def test_the_deadline_of_the_call_and_the_header_both_end_it() -> None:
    async with served() as node, node.channel() as channel:
        say: Any = channel.unary_unary("/echo/say")
        await say(b"{}", timeout=5)
        await say(b"{}", timeout=500, metadata=[("rpc-ttl-ms", "5000")])
        await say(b"{}")
        now = node.echo.clock.monotonic_ms()
        by_call, by_header, without = (meta.expires_ms for meta in node.echo.metas)
    assert without is None
    assert by_call is not None
    assert by_header is not None
    assert 0 < by_call - now <= 5500, "gRPC rounds a timeout up on its way"
    assert 0 < by_header - now <= 5000


async def test_a_caller_that_gives_up_cancels_the_work() -> None:
    async with served() as node, node.channel() as channel:
        wait: Any = channel.unary_unary("/echo/wait")
        call = wait(b"{}")
        waiting = asyncio.ensure_future(_ending(call))
        await soon(node.echo.waiting)
        call.cancel()
        await soon(node.echo.cancelled)
        await waiting


async def test_a_caller_that_hangs_up_cancels_the_work() -> None:
    async with served() as node:
        async with node.channel() as channel:
            wait: Any = channel.unary_unary("/echo/wait")
            waiting = asyncio.ensure_future(_ending(wait(b"{}")))
            await soon(node.echo.waiting)
        await soon(node.echo.cancelled)
        await waiting


async def test_a_reader_that_leaves_a_stream_ends_it() -> None:
    async with served() as node, node.channel() as channel:
        flood: Any = channel.unary_stream("/echo/flood")
        call = flood(b"{}")
        assert b"x" in await call.read()
        call.cancel()
        await soon(node.echo.closed)


async def test_a_slow_reader_holds_the_writer_back() -> None:
    async with served() as node, node.channel() as channel:
        flood: Any = channel.unary_stream("/echo/flood")
        call = flood(b"{}")
        await call.read()
        before = -1
        async with asyncio.timeout(15):
            while before != len(node.echo.heard):  # until nothing more fits between the two
                before = len(node.echo.heard)
                await asyncio.sleep(0.2)
        assert before < 20_000, "what a window of HTTP/2 and two sockets may hold"
        call.cancel()


async def _ending(call: Any) -> None:
    with pytest.raises(asyncio.CancelledError):
        await call


@pytest.mark.parametrize("text", ["\n", "ü", "%", "\U0001f600", "x" * 7], ids=ascii)
async def test_an_endless_error_still_reaches_a_client_with_the_usual_limits(text: str) -> None:
    async def refuses(request: Request, procedure: Any, next_: Any) -> Any:
        raise StaleToken(7, text * 20_000, current_fence=12)

    async with served((refuses,)) as node, node.channel() as channel:
        say: Any = channel.unary_unary("/echo/say")
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await say(b"{}", timeout=8)
        trailers = dict(refused.value.trailing_metadata())
    assert refused.value.code() is grpc.StatusCode.FAILED_PRECONDITION
    assert msgspec.json.decode(trailers["rpc-error-bin"])["details"]["currentFence"] == 12
