"""HTTP as CONTRACT §1 writes it: paths, headers, JSON and statuses of a real node, by hand."""

import re
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import unquote

import msgspec
import pytest

from omnirelay.lease.options import QueueOptions
from omnirelay.node.node import Node
from omnirelay.node.settings import LimitSettings
from omnirelay.testing.raw_http import RawAnswer, RawHttp
from tests.wire.real_node import node, post, said

OPTIONS = QueueOptions(capacity=3, enqueue_wait_ms=0, requeue_delay_ms=0)
ITEM = {"payload": {"resourceType": "table", "resourceId": "a"}}
NOBODYS = {"sequenceId": 9, "attempt": 1, "leaseId": "00000000-0000-0000-0000-000000000009"}
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")
LEASE = {
    *("payload", "sequenceId", "attempt", "enqueuedAt", "ownershipToken", "ownerPeerId"),
    *("fence", "expiresAt", "leaseDurationMs", "heartbeatIntervalMs"),
}
UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


@pytest.fixture
async def opened() -> AsyncIterator[Node]:
    async with node(OPTIONS, grpc="", stream="") as one:
        yield one


async def call(opened: Node, verb: str, body: object, **headers: str) -> RawAnswer:
    return await post(opened, f"/v1/resourcelease/{verb}", body, **headers)


async def good(opened: Node, verb: str, body: object) -> Any:
    """Any: JSON."""
    answer = await call(opened, verb, body)
    assert answer.status == 200, answer
    return said(answer)


# -- how a call looks ---------------------------------------------------------------------------


async def test_both_forms_of_a_call_are_the_same_call(opened: Node) -> None:
    by_path = await call(opened, "stats", {})
    by_header = await post(opened, "/", {}, Rpc_Procedure="resourcelease::stats")
    assert (by_path.status, by_header.status) == (200, 200)
    assert said(by_path) == said(by_header)
    both = await call(opened, "stats", {}, Rpc_Procedure="resourcelease::stats")
    assert both.status == 200
    torn = await call(opened, "stats", {}, Rpc_Procedure="resourcelease::drain")
    assert torn.status == 400


async def test_an_answer_says_how_it_came_and_where_it_belongs(opened: Node) -> None:
    answer = await call(opened, "stats", {}, Rpc_Shard_Key="users/7 é", Rpc_Caller="me")
    assert answer.headers["rpc-transport"] == "http"
    assert answer.headers["rpc-protocol"] == "omnirelay-v1"
    assert answer.headers["rpc-encoding"] == "json"
    assert unquote(answer.headers["rpc-shard-key"]) == "users/7 é"
    assert answer.headers["content-type"] == "application/json"


async def test_json_is_camel_case_with_absent_members_left_out(opened: Node) -> None:
    body = {**ITEM["payload"], "body": "dmFjdXVt", "partitionKey": "eu", "attributes": {"a": "b"}}
    put = await good(opened, "enqueue", {"payload": body, "delayMs": 0, "leaseDurationMs": 60_000})
    assert put == {
        "stats": {"pendingCount": 1, "activeLeaseCount": 0},
        "sequenceId": 1,
        "duplicate": False,
    }
    lease = await good(opened, "lease", {"waitMs": 0})
    token = lease["ownershipToken"]
    assert lease["payload"] == body
    assert lease.keys() == LEASE
    assert TIME.fullmatch(lease["enqueuedAt"])
    assert TIME.fullmatch(lease["expiresAt"])
    assert UUID.fullmatch(token["leaseId"])
    assert token == {
        "sequenceId": 1,
        "attempt": 1,
        "leaseId": token["leaseId"],
        "fence": lease["fence"],
    }
    answer = await call(opened, "heartbeat", {"ownershipToken": token})
    beat = said(answer)
    assert sorted(beat) == ["expiresAt", "remainingMs", "success"]
    assert TIME.fullmatch(beat["expiresAt"])
    assert b"null" not in answer.body


async def test_the_peer_id_is_named_or_absent_never_blank(opened: Node) -> None:
    """The body names the worker; else the header does; a blank name is none (G39), and
    who has no name at all is the named anonymous caller."""
    for body, header, expected in (
        ({"peerId": "w"}, "h", "w"),
        ({}, "h", "h"),
        ({"peerId": ""}, "", "anonymous"),
        ({"peerId": " "}, "h", "h"),
    ):
        await good(opened, "enqueue", ITEM)
        headers = {"x_peer_id": header} if header else {}
        lease = said(await call(opened, "lease", body, **headers))
        assert lease["ownerPeerId"] == expected
        await good(opened, "complete", {"ownershipToken": lease["ownershipToken"]})


async def test_members_nobody_knows_are_passed_over(opened: Node) -> None:
    newer = {**ITEM, "colour": "red", "payload": {**ITEM["payload"], "shape": {"round": [1, None]}}}
    assert (await good(opened, "enqueue", newer))["sequenceId"] == 1


async def test_a_call_without_arguments_needs_no_body(opened: Node) -> None:
    assert (await call(opened, "stats", b"")).status == 200


async def test_an_empty_lease_is_no_content(opened: Node) -> None:
    answer = await call(opened, "lease", {"waitMs": 10})
    assert (answer.status, answer.body) == (204, b"")


async def test_drained_items_travel_as_they_are_documented(opened: Node) -> None:
    await good(opened, "enqueue", {**ITEM, "priority": 2, "maxAttempts": 4})
    lease = await good(opened, "lease", {})
    await good(opened, "fail", {"ownershipToken": lease["ownershipToken"], "reason": "no"})
    page = await good(opened, "drain", {})
    (item,) = page["items"]
    assert page["remaining"] == 0
    assert (item["sequenceId"], item["attempt"], item["priority"]) == (1, 2, 2)
    assert item["lastError"] == {"message": "no", "code": "error.resourcelease.failed"}
    assert item["lastOwnershipToken"]["leaseId"] == lease["ownershipToken"]["leaseId"]
    assert TIME.fullmatch(item["enqueuedAt"])
    assert "deadLetter" not in item
    assert await good(opened, "restore", page) == {"restoredCount": 1, "skippedCount": 0}
    assert await good(opened, "restore", page) == {"restoredCount": 0, "skippedCount": 1}


# -- how a refusal looks ------------------------------------------------------------------------

REFUSED: list[tuple[str, object, int, str]] = [
    ("enqueue", {}, 400, "INVALID_ARGUMENT resourcelease.payload.required"),
    (
        "enqueue",
        {"payload": {"resourceType": "", "resourceId": "a"}},
        400,
        "INVALID_ARGUMENT resourcelease.payload.resource_type_required",
    ),
    (
        "enqueue",
        {"payload": {"resourceType": "t", "resourceId": " "}},
        400,
        "INVALID_ARGUMENT resourcelease.payload.resource_id_required",
    ),
    ("enqueue", {"payload": {}}, 400, "INVALID_ARGUMENT error.invalid_argument"),
    ("enqueue", b"{", 400, "INVALID_ARGUMENT error.invalid_argument"),
    ("enqueue", b"[]", 400, "INVALID_ARGUMENT error.invalid_argument"),
    ("enqueue", b"\xff", 400, "INVALID_ARGUMENT error.invalid_argument"),
    ("lease", {"waitMs": "soon"}, 400, "INVALID_ARGUMENT error.invalid_argument"),
    ("lease", {"waitMs": -1}, 400, "INVALID_ARGUMENT error.invalid_argument"),
    ("lease", {"waitMs": 1.5}, 400, "INVALID_ARGUMENT error.invalid_argument"),
    ("complete", {}, 400, "INVALID_ARGUMENT error.invalid_argument"),
    ("restore", {"items": [{}]}, 400, "INVALID_ARGUMENT error.invalid_argument"),
    ("complete", {"ownershipToken": NOBODYS}, 404, "NOT_FOUND error.resourcelease.unknown_token"),
    ("explode", {}, 404, "UNIMPLEMENTED error.unimplemented"),
    ("work", {}, 404, "UNIMPLEMENTED error.unimplemented"),
    ("enqueue", bytes(9 << 20), 413, "RESOURCE_EXHAUSTED error.body_too_large"),
]


@pytest.mark.parametrize(("verb", "body", "number", "status_and_code"), REFUSED)
async def test_a_refusal_says_what_was_wrong_in_body_and_headers(
    opened: Node, verb: str, body: object, number: int, status_and_code: str
) -> None:
    answer = await call(opened, verb, body)
    refusal = said(answer)
    assert answer.status == number
    assert f"{refusal['status']} {refusal['code']}" == status_and_code
    assert f"{answer.headers['rpc-status']} {answer.headers['rpc-error-code']}" == status_and_code
    assert refusal["message"]
    assert refusal["message"].startswith(unquote(answer.headers["rpc-error-message"])[:500])
    assert "retry-after" not in answer.headers


async def test_a_stale_token_is_refused_with_the_fence_that_counts(opened: Node) -> None:
    await good(opened, "enqueue", ITEM)
    old = (await good(opened, "lease", {}))["ownershipToken"]
    await good(opened, "release", {"ownershipToken": old})
    new = await good(opened, "lease", {})
    answer = await call(opened, "complete", {"ownershipToken": old})
    refusal = said(answer)
    assert (answer.status, refusal["status"]) == (412, "FAILED_PRECONDITION")
    assert refusal["code"] == "error.taskqueue.lease_inactive"
    assert refusal["details"]["currentFence"] == new["fence"]


async def test_a_conflicting_item_is_refused_as_existing_already(opened: Node) -> None:
    await good(opened, "enqueue", ITEM)
    item = {**ITEM, "attempt": 1, "enqueuedAt": "2026-01-01T00:00:00Z", "sequenceId": 1}
    answer = await call(opened, "restore", {"items": [item]})
    assert (answer.status, said(answer)["status"]) == (409, "ALREADY_EXISTS")
    assert said(answer)["code"] == "error.resourcelease.sequence_conflict"


async def test_a_full_queue_says_when_to_come_back(opened: Node) -> None:
    for _ in range(3):
        await good(opened, "enqueue", ITEM)
    answer = await call(opened, "enqueue", ITEM)
    assert (answer.status, said(answer)["code"]) == (429, "error.resourcelease.capacity")
    assert answer.headers["retry-after"] == "1"


async def test_too_many_calls_of_one_kind_are_refused_and_urgent_ones_never() -> None:
    """G52: the limiter makes nobody wait and never slows what makes room."""
    limits = LimitSettings(rate_per_s=0.001, burst=2)
    async with node(grpc="", stream="", limits=limits) as opened:
        await good(opened, "enqueue", ITEM)
        lease = await good(opened, "lease", {})
        answer = await call(opened, "enqueue", ITEM)
        assert (answer.status, said(answer)["code"]) == (429, "error.rate_limited")
        assert answer.headers["retry-after"] == "1"
        token = {"ownershipToken": lease["ownershipToken"]}
        for _ in range(20):
            await good(opened, "heartbeat", token)
            await good(opened, "stats", {})
        await good(opened, "complete", token)


@pytest.mark.parametrize("ttl", ["30", "30.5", " 30.25 "])
async def test_a_deadline_ends_a_waiting_lease_as_what_it_is(opened: Node, ttl: str) -> None:
    """G35 and G37: not as a cancellation, and fractions count."""
    answer = await call(opened, "lease", {"waitMs": 60_000}, Rpc_Ttl_Ms=ttl)
    assert (answer.status, said(answer)["code"]) == (504, "error.deadline_exceeded")
    assert answer.headers["rpc-status"] == "DEADLINE_EXCEEDED"


async def test_a_deadline_ends_an_enqueue_that_waits_for_room_and_nothing_comes_of_it() -> None:
    options = QueueOptions(pending_high=1, pending_low=0, enqueue_wait_ms=60_000)
    async with node(options, grpc="", stream="") as opened:
        await good(opened, "enqueue", ITEM)
        late = await call(opened, "enqueue", ITEM, Rpc_Ttl_Ms="40.5")
        assert late.status == 504
        lease = await good(opened, "lease", {})
        await good(opened, "complete", {"ownershipToken": lease["ownershipToken"]})
        assert (await good(opened, "stats", {}))["stats"]["pendingCount"] == 0
        await good(opened, "enqueue", ITEM)


@pytest.mark.parametrize(
    "bad",
    [
        {"Rpc_Ttl_Ms": "soon"},
        {"Rpc_Ttl_Ms": "-1"},
        {"Rpc_Ttl_Ms": "nan"},
        {"Rpc_Ttl_Ms": "1_000"},
        {"Rpc_Deadline": "tomorrow"},
        {"Rpc_Deadline": "2026-01-01T00:00:00"},
        {"Rpc_Encoding": "pickle"},
        {"Rpc_Caller": "c" * 513},
    ],
)
async def test_a_header_that_cannot_be_meant_is_refused(opened: Node, bad: dict[str, str]) -> None:
    assert (await call(opened, "stats", {}, **bad)).status == 400


async def test_a_deadline_in_the_past_is_over_before_anything_is_done(opened: Node) -> None:
    answer = await call(opened, "enqueue", ITEM, Rpc_Deadline="2020-01-01T00:00:00Z")
    assert answer.status == 504
    assert (await good(opened, "stats", {}))["stats"]["pendingCount"] == 0


async def test_messagepack_is_spoken_too(opened: Node) -> None:
    body = msgspec.msgpack.encode(ITEM)
    answer = await call(opened, "enqueue", body, Rpc_Encoding="msgpack")
    assert answer.headers["rpc-encoding"] == "msgpack"
    assert msgspec.msgpack.decode(answer.body)["sequenceId"] == 1


# -- events -------------------------------------------------------------------------------------


async def events_of(
    opened: Node, path: str, most: int, **headers: str
) -> list[tuple[int, dict[str, Any]]]:
    """Any: JSON."""
    found: list[tuple[int, dict[str, Any]]] = []
    async with RawHttp(opened.urls["http"]) as raw:
        lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
        await raw.send(f"GET {path} HTTP/1.1\r\nhost: test\r\n{lines}\r\n".encode())
        head = await raw.head()
        assert head.status == 200
        assert head.headers["content-type"].startswith("text/event-stream")
        text = b""
        while len(found) < most and (part := await raw.chunk()):
            text += part
            *blocks, text = text.split(b"\n\n")
            for block in blocks:
                fields = dict(line.split(b": ", 1) for line in block.split(b"\n") if line)
                if b"data" in fields:
                    found.append((int(fields[b"id"]), msgspec.json.decode(fields[b"data"])))
    return found


async def test_events_come_in_order_and_go_on_where_a_reader_stopped(opened: Node) -> None:
    await good(opened, "enqueue", ITEM)
    lease = await good(opened, "lease", {"peerId": "w"})
    await good(opened, "complete", {"ownershipToken": lease["ownershipToken"]})
    path = "/v1/resourcelease/events"
    everything = await events_of(opened, f"{path}?from=0", 4)
    assert [number for number, _ in everything] == [1, 2, 3, 4]
    types = [event["eventType"] for _, event in everything]
    assert types == ["EpochStarted", "Enqueue", "LeaseGranted", "Completed"]
    resumed = await events_of(opened, path, 2, Last_Event_ID="2")
    assert [number for number, _ in resumed] == [3, 4]
    ended = await events_of(opened, f"{path}?from=4&follow=false", 9)
    assert [number for number, _ in ended] == [4]
    granted = everything[2][1]
    assert (granted["sequenceNumber"], granted["shard"], granted["epoch"]) == (
        3,
        "resourcelease",
        1,
    )
    assert (granted["peerId"], granted["principal"], granted["node"]) == (
        "w",
        "anonymous",
        "node-1",
    )
    assert granted["fence"] == lease["fence"]
    assert TIME.fullmatch(granted["timestamp"])
    assert {"queue.pending", "queue.active", "shard.id"} <= granted["metadata"].keys()


@pytest.mark.parametrize("query", ["?from=-1", "?from=x", "?from=1.5"])
async def test_a_bad_position_in_the_events_is_refused(opened: Node, query: str) -> None:
    async with RawHttp(opened.urls["http"]) as raw:
        answer = await raw.ask("GET", f"/v1/resourcelease/events{query}")
    assert answer.status == 400
