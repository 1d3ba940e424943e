"""Who may do what on a real node, over every wire, and whose name its journal carries."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from omnirelay.identity.policy import PERMISSIONS, GrantSettings, Role
from omnirelay.identity.settings import IdentitySettings
from omnirelay.journal.events import PROOF, Event
from omnirelay.lease.options import QueueOptions
from omnirelay.mesh import wire
from omnirelay.model.errors import (
    InvalidArgument,
    OmniRelayError,
    PermissionDenied,
    Unauthenticated,
)
from omnirelay.model.items import Payload, Token
from omnirelay.node.node import Node
from omnirelay.testing import figures
from omnirelay.testing.issuers import Signer
from omnirelay.testing.raw_http import RawHttp
from tests.wire.guarded_node import (
    NOBODY,
    OBSERVER,
    OPERATOR,
    OTHER,
    PEER,
    PRODUCER,
    ROLES,
    WORKER,
    Guard,
)
from tests.wire.real_node import DUPLEX_WIRES, NAMESPACE, WIRES, Caller, caller, node

NOBODYS = Token(999, 1, "00000000-0000-0000-0000-000000000009")
REQUESTS: dict[str, msgspec.Struct] = {
    "enqueue": wire.EnqueueRequest(payload=Payload("table", "a")),
    "enqueueBatch": wire.EnqueueBatchRequest(()),
    "lease": wire.LeaseRequest(),
    "leaseBatch": wire.LeaseBatchRequest(),
    "heartbeat": wire.TokenRequest(NOBODYS),
    "heartbeatBatch": wire.TokenBatchRequest(()),
    "complete": wire.TokenRequest(NOBODYS),
    "completeBatch": wire.TokenBatchRequest(()),
    "completeAndLease": wire.CompleteAndLeaseRequest((NOBODYS,)),
    "fail": wire.FailRequest(NOBODYS),
    "release": wire.TokenRequest(NOBODYS),
    "drain": wire.DrainRequest(),
    "restore": wire.RestoreRequest(()),
    "stats": wire.StatsRequest(),
    "inspect": wire.InspectRequest(sequence_id=999),
    "deadLetters": wire.DeadLettersRequest(),
    "redrive": wire.DeadSelection(),
    "purge": wire.DeadSelection(),
    "position": wire.PositionRequest("lake"),
}


@pytest.fixture
def guard(tmp_path: Path) -> Guard:
    return Guard(tmp_path)


@pytest.fixture
async def opened(guard: Guard) -> AsyncIterator[Node]:
    options = QueueOptions(requeue_delay_ms=0, refusals_every_ms=0)
    async with node(
        options, identity=guard.identity(), namespace=("elsewhere",), grace_s=0.2
    ) as one:
        yield one


async def refusal_of(call: Caller, verb: str, request: msgspec.Struct) -> type | None:
    try:
        await call(verb, request)
    except OmniRelayError as error:
        return type(error)
    return None


async def refusal_of_stream(call: Caller, verb: str) -> type | None:
    async def messages() -> AsyncIterator[wire.WorkRequest]:
        yield wire.WorkRequest(heartbeat=(NOBODYS,))

    try:
        stream: Any
        if verb == "work":
            stream = await call.client.duplex("work", messages(), wire.WorkResponse)
        else:
            stream = await call.client.server_stream("events", wire.EventsRequest(), Event)
        async with aclosing(stream), asyncio.timeout(10):
            await anext(stream)
    except OmniRelayError as error:
        return type(error)
    return None


@pytest.mark.parametrize("over", WIRES)
async def test_a_role_may_do_its_verbs_and_no_others(opened: Node, guard: Guard, over: str) -> None:
    wrongly: list[str] = []
    tried = 0
    for who in (*ROLES, NOBODY):
        allowed = PERMISSIONS[ROLES[who]] if who in ROLES else frozenset()
        async with caller(opened, over, headers=guard.headers(who)) as call:
            for verb, request in REQUESTS.items():
                is_denied = await refusal_of(call, verb, request) is PermissionDenied
                tried += 1
                if is_denied == (verb in allowed):
                    wrongly.append(f"{who} {verb}")
            for verb in ("events", "work") if over in DUPLEX_WIRES else ("events",):
                is_denied = await refusal_of_stream(call, verb) is PermissionDenied
                tried += 1
                if is_denied == (verb in allowed):
                    wrongly.append(f"{who} {verb}")
    figures.record("identity", cases=tried, server_errors=0, wrongly_accepted=len(wrongly))
    assert wrongly == []


@pytest.mark.parametrize("over", WIRES)
async def test_a_role_counts_in_its_namespace_only(opened: Node, guard: Guard, over: str) -> None:
    for who in ROLES:
        how: dict[str, Any] = {"headers": guard.headers(who)}
        async with caller(opened, over, namespace="elsewhere", **how) as call:
            with pytest.raises(PermissionDenied):
                await call.stats()


@pytest.mark.parametrize("over", WIRES)
async def test_whoever_proves_nothing_may_do_nothing(opened: Node, guard: Guard, over: str) -> None:
    claims = {"x-client-principal": OPERATOR, "rpc-caller": OPERATOR, "x-mesh-role": "operator"}
    stranger = {"authorization": f"Bearer {Signer(guard.signer.name).token(sub=OPERATOR)}"}
    for headers in ({}, claims, stranger, {"authorization": "Bearer x.y.z"}):
        async with caller(opened, over, headers=headers) as call:
            for verb in ("stats", "enqueue", "drain"):
                with pytest.raises(Unauthenticated):
                    await call(verb, REQUESTS[verb])


@pytest.mark.parametrize("over", WIRES)
async def test_headers_that_claim_another_name_change_nobody(
    opened: Node, guard: Guard, over: str
) -> None:
    """G61, G62: what a caller says about itself is dropped; only what it proves counts."""
    headers = {
        **guard.headers(PRODUCER),
        "rpc-caller": OPERATOR,
        "rpc.principal": OPERATOR,
        "x-client-principal": OPERATOR,
        "x-mtls-subject": OPERATOR,
        "x-mesh-role": "operator",
        "x-mesh-scope": "*",
        "x-peer-id": OPERATOR,
    }
    async with caller(opened, over, headers=headers) as call:
        with pytest.raises(PermissionDenied):
            await call("drain", wire.DrainRequest())
        await call.enqueue("a")
    async with caller(opened, over, headers=guard.headers(OBSERVER)) as call:
        events = await call.client.server_stream("events", wire.EventsRequest(from_=2), Event)
        async with aclosing(events), asyncio.timeout(10):
            event = await anext(events)
    assert (event.principal, event.event_type) == (PRODUCER, "Enqueue")
    assert event.peer_id == PRODUCER


@pytest.mark.parametrize("over", WIRES)
async def test_a_lease_belongs_to_the_principal_that_took_it(
    opened: Node, guard: Guard, over: str
) -> None:
    async with (
        caller(opened, over, headers=guard.headers(PRODUCER)) as producer,
        caller(opened, over, headers=guard.headers(WORKER)) as holder,
        caller(opened, over, headers=guard.headers(OTHER)) as thief,
    ):
        await producer.enqueue("a")
        lease = await holder.lease(peer_id="w-1", request_id="r-1")
        assert lease.owner_peer_id == "w-1"
        token = wire.TokenRequest(lease.token)
        for verb in ("heartbeat", "complete", "release"):
            with pytest.raises(PermissionDenied):
                await thief(verb, token)
        with pytest.raises(PermissionDenied):
            await thief("fail", wire.FailRequest(lease.token))
        for verb in ("heartbeatBatch", "completeBatch"):
            (result,) = (await thief(verb, wire.TokenBatchRequest((lease.token,)))).results
            assert (result.success, result.error_code) == (False, "error.permission_denied")
        with pytest.raises(PermissionDenied):  # nor does its request id fetch it
            await thief.lease(peer_id="w-1", request_id="r-1")
        assert (await holder.lease(request_id="r-1")).fence == lease.fence
        assert (await holder("complete", token)).success


@pytest.mark.parametrize("over", DUPLEX_WIRES)
async def test_a_stolen_token_is_refused_in_a_stream_of_work_too(
    opened: Node, guard: Guard, over: str
) -> None:
    async with (
        caller(opened, over, headers=guard.headers(PRODUCER)) as producer,
        caller(opened, over, headers=guard.headers(WORKER)) as holder,
        caller(opened, over, headers=guard.headers(OTHER)) as thief,
    ):
        await producer.enqueue("a")
        lease = await holder.lease()

        async def messages() -> AsyncIterator[wire.WorkRequest]:
            yield wire.WorkRequest(complete=(lease.token,))

        stream = await thief.client.duplex("work", messages(), wire.WorkResponse)
        async with aclosing(stream), asyncio.timeout(10):
            (result,) = (await anext(stream)).results
        assert result.result.error_code == "error.permission_denied"
        assert (await holder("complete", wire.TokenRequest(lease.token))).success


async def test_the_worker_is_named_by_the_body_then_by_its_proof(
    opened: Node, guard: Guard
) -> None:
    """L8: `peerId`, else the proved caller, else the header; never a blank."""
    async with caller(opened, "http", headers=guard.headers(PRODUCER)) as producer:
        for name in "abc":
            await producer.enqueue(name)
    headers = {**guard.headers(WORKER), "x-peer-id": "header"}
    async with caller(opened, "http", headers=headers) as call:
        named = [(await call.lease(peer_id=peer)).owner_peer_id for peer in ("body", "  ", None)]
    assert named == ["body", WORKER, WORKER]


async def test_a_peer_id_that_is_no_text_is_refused(opened: Node, guard: Guard) -> None:
    headers = {**guard.headers(WORKER), "x-peer-id": "a\u200bb"}
    async with caller(opened, "stream", headers=headers) as call:
        with pytest.raises(InvalidArgument):
            await call.stats()


async def test_every_event_carries_who_was_proved_and_by_what(opened: Node, guard: Guard) -> None:
    """G63. Two tokens of one principal are two proofs, and each beat keeps its own."""
    async with (
        caller(opened, "stream", headers=guard.headers(PEER)) as call,
        caller(opened, "grpc", headers=guard.headers(PEER, jti="another")) as again,
        caller(opened, "http", headers=guard.headers(OPERATOR)) as operator,
    ):
        for name in "abcde":
            await call.enqueue(name)
        a, b, c, d = [await call.lease(peer_id="w") for _ in range(4)]
        held = [wire.TokenRequest(lease.token) for lease in (a, b, c, d)]
        await call("heartbeat", held[0])
        await again("heartbeat", held[0])
        await call("complete", held[0])
        await call("release", held[1])
        await call("fail", wire.FailRequest(c.token, requeue=False))
        await call("fail", wire.FailRequest(d.token, requeue=False))
        await operator("redrive", wire.DeadSelection(sequence_ids=(c.sequence_id,)))
        await operator("purge", wire.DeadSelection())
        page = await operator("drain", wire.DrainRequest())
        await operator("restore", wire.RestoreRequest(page.items))
        await call.lease(peer_id="w", lease_duration_ms=100)
        stream = await operator.client.server_stream("events", wire.EventsRequest(), Event)
        events = [await anext(stream)]
        while events[-1].event_type != "Expired":
            events.append(await anext(stream))
        await stream.aclose()
    kinds = {event.event_type for event in events}
    assert kinds == {
        *("EpochStarted", "Enqueue", "LeaseGranted", "Heartbeat", "Completed", "Released"),
        *("Failed", "Expired", "Redriven", "Purged", "DrainSnapshot", "RestoreSnapshot"),
    }
    for event in events[1:]:
        by_operator = event.event_type in (
            *("Redriven", "Purged", "DrainSnapshot", "RestoreSnapshot"),
        )
        assert event.principal == (OPERATOR if by_operator else PEER), event
        # Nobody asked for an expiry: it names whose lease it was, and proves nothing.
        assert len(event.metadata.get(PROOF, "")) == (event.event_type != "Expired") * 64, event
    beats = [event.metadata[PROOF] for event in events if event.event_type == "Heartbeat"]
    assert len(set(beats)) == 2
    by_worker = ("LeaseGranted", "Heartbeat", "Completed", "Released", "Failed", "Expired")
    for event in events[1:]:
        is_operators = event.principal == OPERATOR
        named = "w" if event.event_type in by_worker else OPERATOR if is_operators else PEER
        assert event.peer_id == named, event
    assert events[0].node, "an epoch is begun by a node, which it names"


async def test_whoever_was_denied_is_in_the_journal_with_the_next_event(
    opened: Node, guard: Guard
) -> None:
    async with (
        caller(opened, "stream", headers=guard.headers(PRODUCER)) as producer,
        caller(opened, "http", headers=guard.headers(NOBODY)) as nobody,
        caller(opened, "stream", headers=guard.headers(OBSERVER)) as observer,
    ):
        for _ in range(2):
            with pytest.raises(PermissionDenied):
                await nobody("drain", wire.DrainRequest())
        await producer.enqueue("a")
        with pytest.raises(PermissionDenied):
            await producer("inspect", REQUESTS["inspect"])
        await producer.enqueue("b")
        wanted = wire.EventsRequest(follow=False)
        stream = await observer.client.server_stream("events", wanted, Event)
        found = [event async for event in stream]
    assert [event.event_type for event in found[1:]] == ["Enqueue", "Refused"] * 2
    denied = found[2::2]
    assert [(one.principal, one.metadata["verb"], one.metadata["times"]) for one in denied] == [
        (NOBODY, "drain", "2"),
        (PRODUCER, "inspect", "1"),
    ]
    assert denied[0].metadata[PROOF]
    assert denied[0].error is not None
    assert denied[0].error.code == "error.permission_denied"


async def test_the_control_plane_has_permissions_of_its_own(opened: Node, guard: Guard) -> None:
    """Roles in the control plane are granted apart; here everybody has theirs in both."""
    reads = "/omnirelay/control/shards"
    expected = {OBSERVER: (200, 403), OPERATOR: (200, 200), WORKER: (403, 403), PEER: (403, 403)}
    for who, statuses in expected.items():
        token = {"authorization": f"Bearer {guard.token(who)}", "content_type": "application/json"}
        async with RawHttp(opened.urls["http"]) as raw:
            seen = await raw.ask("GET", reads, b"", **token)
            changed = await raw.ask("POST", "/omnirelay/control/upgrade/resume", b"{}", **token)
        assert (seen.status, changed.status) == statuses, who


@pytest.mark.parametrize("over", WIRES)
async def test_keys_that_are_rotated_count_on_a_running_node(
    opened: Node, guard: Guard, over: str
) -> None:
    old = guard.headers(OPERATOR)
    async with caller(opened, over, headers=old) as call:
        await call.stats()
    guard.rotate()
    new = guard.headers(OPERATOR)
    async with asyncio.timeout(10):
        while True:  # the file is looked at once a second
            async with caller(opened, over, headers=new) as call:
                if await refusal_of(call, "stats", wire.StatsRequest()) is None:
                    break
            await asyncio.sleep(0.05)
    async with caller(opened, over, headers=old) as call:
        with pytest.raises(Unauthenticated):
            await call.stats()


@pytest.mark.parametrize("over", WIRES)
async def test_without_identity_everybody_on_loopback_is_the_named_anonymous(over: str) -> None:
    async with (
        node() as opened,
        caller(
            opened, over, headers={"authorization": "Bearer whatever", "x-client-principal": "root"}
        ) as call,
    ):
        await call.enqueue("a")
        lease = await call.lease()
        view = await call("inspect", wire.InspectRequest(sequence_id=lease.sequence_id))
    assert view.principal == "anonymous"


async def test_whoever_says_it_aloud_may_open_a_node_to_the_world() -> None:
    async with node(http="0.0.0.0:0", grpc="", stream="", insecure=True) as opened:
        port = opened.urls["http"].rpartition(":")[2]
        async with RawHttp(f"http://127.0.0.1:{port}") as raw:
            assert (await raw.ask("POST", f"/v1/{NAMESPACE}/stats", b"{}")).status == 200


async def test_anonymous_callers_are_let_in_where_roles_say_so(guard: Guard) -> None:
    """By their name only: `*` means everybody who was proved."""

    def identity(*principals: str) -> IdentitySettings:
        grant = GrantSettings(role=Role.PRODUCER, principals=principals, namespaces=(NAMESPACE,))
        return guard.identity(anonymous=True, roles=(grant,))

    async with node(identity=identity("*")) as opened, caller(opened, "stream") as call:
        with pytest.raises(PermissionDenied):
            await call.enqueue("a")
    async with node(identity=identity("anonymous")) as opened, caller(opened, "stream") as call:
        await call.enqueue("a")
        with pytest.raises(PermissionDenied):
            await call.lease()


async def test_a_reader_of_events_moves_no_position_but_its_own(opened: Node, guard: Guard) -> None:
    for who, sequence in ((OBSERVER, 1), (OPERATOR, 7)):
        async with caller(opened, "stream", headers=guard.headers(who)) as call:
            await call("position", wire.PositionRequest("lake", sequence))
    async with caller(opened, "stream", headers=guard.headers(OBSERVER)) as call:
        assert (await call("position", wire.PositionRequest("lake"))).sequence == 1
    shown = await asyncio.to_thread(opened.shards[NAMESPACE].followers)
    assert [one.name for one in shown] == ["lake@olga", "lake@otto"]
