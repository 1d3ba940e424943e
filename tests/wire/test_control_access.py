"""Who may look through the windows of a node, and who may change something."""

import msgspec
import pytest

from omnirelay.node.node import Node
from omnirelay.testing.raw_http import RawAnswer, RawHttp
from tests.wire.control_node import CONTROL, JSON, ask, get, node, proxied, url_of

READS = [
    "/metrics",
    "/omnirelay/introspect",
    f"{CONTROL}/overview",
    f"{CONTROL}/shards",
    f"{CONTROL}/peers",
    f"{CONTROL}/lease-health",
    f"{CONTROL}/backpressure",
    f"{CONTROL}/backpressure/stream",
    f"{CONTROL}/replication/checkpoint",
    f"{CONTROL}/logging",
    f"{CONTROL}/tracing",
    f"{CONTROL}/upgrade",
    f"{CONTROL}/region",
    "/",
    "/assets/dashboard.js",
    "/assets/nothing.js",
]
CHANGES = {
    f"{CONTROL}/logging": b'{"level":"warning"}',
    f"{CONTROL}/tracing": b'{"samplingProbability":0.5}',
    f"{CONTROL}/upgrade/drain": b"",
    f"{CONTROL}/upgrade/resume": b"{}",
    f"{CONTROL}/region/stand-down": b"{}",
    f"{CONTROL}/region/promote": b'{"acceptLossMs":0}',
}


async def status_of(opened: Node, method: str, path: str, body: bytes = b"", **by: str) -> int:
    """Of the head alone: a stream has no end."""
    async with RawHttp(url_of(opened)) as raw:
        head = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in by.items())
        length = f"content-length: {len(body)}\r\n"
        await raw.send(
            f"{method} {path} HTTP/1.1\r\nhost: test\r\n{length}{head}\r\n".encode() + body
        )
        return (await raw.head()).status


async def test_whoever_proves_nothing_sees_only_whether_the_node_lives() -> None:
    async with node(identity=proxied()) as opened:
        reads = {path: await status_of(opened, "GET", path) for path in READS}
        changes = {
            path: await status_of(opened, "POST", path, body, content_type=JSON)
            for path, body in CHANGES.items()
        }
        health = [await status_of(opened, "GET", path) for path in ("/healthz", "/readyz")]
        assert not opened.is_draining
    assert set(reads.values()) == {401}, reads
    assert set(changes.values()) == {401}, changes
    assert health == [200, 200]


async def test_a_worker_of_a_queue_may_not_look_at_the_control_plane() -> None:
    async with node(identity=proxied()) as opened:
        by = {"x_client_principal": "eve"}
        reads = {path: await status_of(opened, "GET", path, b"", **by) for path in READS}
    assert set(reads.values()) == {403}, reads


async def test_an_observer_may_look_and_change_nothing() -> None:
    async with node(identity=proxied()) as opened:
        by = {"x_client_principal": "ada"}
        reads = {path: await status_of(opened, "GET", path, b"", **by) for path in READS}
        changes = {
            path: await status_of(opened, "POST", path, body, content_type=JSON, **by)
            for path, body in CHANGES.items()
        }
        assert not opened.is_draining
    assert reads.pop("/assets/nothing.js") == 404
    assert reads.pop(f"{CONTROL}/backpressure") == 204
    assert set(reads.values()) == {200}, reads
    assert set(changes.values()) == {403}, changes


async def test_an_operator_may_change() -> None:
    async with node(identity=proxied()) as opened:
        statuses = [
            await status_of(opened, "POST", path, body, content_type=JSON, x_client_principal="bob")
            for path, body in CHANGES.items()
        ]
    assert statuses == [200] * len(CHANGES)


async def test_two_principals_in_one_request_are_nobody() -> None:
    async with node(identity=proxied()) as opened, RawHttp(url_of(opened)) as raw:
        await raw.send(
            b"GET /metrics HTTP/1.1\r\nhost: test\r\nx-client-principal: ada\r\n"
            b"x-client-principal: bob\r\n\r\n"
        )
        answer = await raw.answer()
    assert answer.status == 401


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
async def test_a_window_can_only_be_looked_through(method: str) -> None:
    async with node() as opened:
        answers = [
            await ask(opened, method, path, content_type=JSON)
            for path in ("/healthz", "/readyz", "/metrics", f"{CONTROL}/shards", "/assets/icon.svg")
        ]
    assert {(answer.status, answer.headers["allow"]) for answer in answers} == {(405, "GET")}


async def test_a_switch_is_not_turned_by_looking() -> None:
    async with node() as opened:
        drain = await ask(opened, "GET", f"{CONTROL}/upgrade/drain")
        put = await ask(opened, "PUT", f"{CONTROL}/logging", b"{}", content_type=JSON)
        assert not opened.is_draining
    assert (drain.status, drain.headers["allow"]) == (405, "POST")
    assert (put.status, put.headers["allow"]) == (405, "GET, POST")


async def drain(opened: Node, *lines: str, host: str | None = None) -> RawAnswer:
    own = url_of(opened).removeprefix("http://")
    head = [
        f"POST {CONTROL}/upgrade/drain HTTP/1.1",
        f"host: {host or own}",
        "content-length: 0",
        *(line.replace("OWN", own) for line in lines),
    ]
    async with RawHttp(url_of(opened)) as raw:
        await raw.send("\r\n".join([*head, "", ""]).encode())
        return await raw.answer()


FOREIGN = [
    ("sec-fetch-site: cross-site",),
    ("sec-fetch-site: same-site",),
    ("sec-fetch-site: Same-Site",),
    ("sec-fetch-site: none, same-site",),
    ("origin: https://evil.example",),
    ("origin: null",),
    ("origin: ",),
    ("origin: http://[",),
    ("origin: http://localhost:1",),
    ("origin: http://OWN.evil.example",),
    ("origin: http://OWN@evil.example",),
    ("sec-fetch-site: same-origin", "origin: https://evil.example"),
]


@pytest.mark.parametrize("lines", FOREIGN)
async def test_a_page_of_another_site_changes_nothing(lines: tuple[str, ...]) -> None:
    async with node() as opened:
        answer = await drain(opened, f"content-type: {JSON}", *lines)
        assert not opened.is_draining
    assert answer.status == 403
    assert answer.json()["code"] == "error.permission_denied"


async def test_a_name_that_was_made_to_lead_here_changes_nothing() -> None:
    async with node() as opened:
        lines = (f"content-type: {JSON}", "sec-fetch-site: same-origin")
        rebound = await drain(opened, *lines, "origin: http://evil.example", host="evil.example")
        assert not opened.is_draining
    assert rebound.status == 403


OWN = [
    (),
    ("sec-fetch-site: same-origin", "origin: http://OWN"),
    ("sec-fetch-site: none",),
    ("origin: HTTP://OWN",),
]


@pytest.mark.parametrize("lines", OWN)
async def test_a_program_or_a_page_of_the_node_itself_may_change(lines: tuple[str, ...]) -> None:
    async with node() as opened:
        answer = await drain(opened, f"content-type: {JSON}", *lines)
        assert opened.is_draining
    assert answer.status == 200


@pytest.mark.parametrize(
    "kind",
    ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", ""],
)
async def test_what_a_form_can_send_changes_nothing(kind: str) -> None:
    async with node() as opened:
        answer = await drain(opened, *([f"content-type: {kind}"] if kind else []))
        assert not opened.is_draining
    assert answer.status == 400
    assert "application/json" in str(answer.json()["message"])


async def test_secrets_of_a_caller_come_back_in_no_answer() -> None:
    canary = "canary-5dd1"
    async with node(identity=proxied()) as opened:
        said = [
            await ask(opened, "GET", path, authorization=f"Bearer {canary}", cookie=canary)
            for path in ("/readyz", "/metrics", f"{CONTROL}/shards")
        ]
        said.append(
            await ask(
                opened,
                "POST",
                f"{CONTROL}/logging",
                msgspec.json.encode({"level": "info"}),
                content_type=JSON,
                authorization=f"Bearer {canary}",
            )
        )
    assert all(canary.encode() not in answer.body for answer in said)
    assert [answer.status for answer in said] == [200, 401, 401, 401]


async def test_a_node_without_identity_is_open_to_whoever_reaches_it() -> None:
    async with node() as opened:
        assert (await get(opened, f"{CONTROL}/shards"))["shards"]
        assert await status_of(opened, "POST", f"{CONTROL}/upgrade/drain", content_type=JSON) == 200
