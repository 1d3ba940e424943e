"""Calls over HTTP: both forms, every kind, every header, every status."""

from collections.abc import AsyncGenerator

import msgspec
import pytest

from omnirelay.testing.raw_http import RawHttp
from tests.wire.http_echo import Served, served

SAY = b'{"text":"hello"}'


@pytest.fixture
async def node() -> AsyncGenerator[Served]:
    async with served() as running:
        yield running


@pytest.fixture
async def raw(node: Served) -> AsyncGenerator[RawHttp]:
    async with RawHttp(node.url) as connected:
        yield connected


async def test_both_forms_of_a_call_are_the_same_call(node: Served, raw: RawHttp) -> None:
    by_path = await raw.ask("POST", "/v1/echo/say", SAY)
    by_header = await raw.ask("POST", "/", SAY, Rpc_Procedure="echo::say")
    assert by_path.status == by_header.status == 200
    assert by_path.body == by_header.body == SAY
    assert [meta.procedure for meta in node.echo.metas] == ["echo::say"] * 2


async def test_an_answer_says_how_it_came(raw: RawHttp) -> None:
    answer = await raw.ask("POST", "/v1/echo/say", SAY, Rpc_Shard_Key="users")
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["rpc-transport"] == "http"
    assert answer.headers["rpc-encoding"] == "json"
    assert answer.headers["rpc-shard-key"] == "users"
    assert "date" in answer.headers


async def test_every_header_of_a_call_reaches_it(node: Served, raw: RawHttp) -> None:
    await raw.ask(
        "POST",
        "/v1/echo/say",
        SAY,
        Rpc_Caller="billing",
        Rpc_Shard_Key="schlüssel",
        Rpc_Routing_Key="r",
        Rpc_Routing_Delegate="d",
        Rpc_Ttl_Ms="60000",
        X_Peer_Id="worker-1",
        Authorization="Bearer t",
    )
    (meta,) = node.echo.metas
    assert (meta.caller, meta.shard_key, meta.peer_id) == ("billing", "schlüssel", "worker-1")
    assert (meta.routing_key, meta.routing_delegate) == ("r", "d")
    assert meta.expires_ms is not None
    assert meta.headers["authorization"] == "Bearer t"
    assert meta.address == "127.0.0.1"
    assert meta.certificate is None


@pytest.mark.parametrize(
    "headers",
    [{"Rpc_Encoding": "msgpack"}, {"Content_Type": "application/msgpack"}],
    ids=["by encoding", "by content type"],
)
async def test_msgpack_is_spoken_too(raw: RawHttp, headers: dict[str, str]) -> None:
    body = msgspec.msgpack.encode({"text": "hello"})
    answer = await raw.ask("POST", "/v1/echo/say", body, **headers)
    assert msgspec.msgpack.decode(answer.body) == {"text": "hello"}
    assert answer.headers["content-type"] == "application/msgpack"
    assert answer.headers["rpc-encoding"] == "msgpack"


async def test_json_under_another_content_type_is_taken(raw: RawHttp) -> None:
    answer = await raw.ask(
        "POST", "/v1/echo/say", SAY, Content_Type="application/x-www-form-urlencoded"
    )
    assert answer.body == SAY


async def test_an_empty_answer_is_204_and_a_oneway_call_202(node: Served, raw: RawHttp) -> None:
    nothing = await raw.ask("POST", "/v1/echo/nothing", b"{}")
    assert (nothing.status, nothing.body) == (204, b"")
    assert "content-length" not in nothing.headers
    told = await raw.ask("POST", "/v1/echo/tell", SAY)
    assert (told.status, told.body) == (202, b"")
    assert node.echo.heard == ["hello"]


async def test_an_error_has_status_headers_and_body(raw: RawHttp) -> None:
    answer = await raw.ask("POST", "/v1/echo/stale")
    assert answer.status == 412
    assert answer.headers["rpc-status"] == "FAILED_PRECONDITION"
    assert answer.headers["rpc-error-code"] == "error.taskqueue.lease_inactive"
    assert "%0A" in answer.headers["rpc-error-message"]
    assert answer.json()["details"] == {"sequenceId": 7, "currentFence": 12}
    again = await raw.ask("POST", "/v1/echo/say", SAY)
    assert again.status == 200, "the connection goes on"


async def test_a_bug_tells_the_caller_nothing_but_its_number(raw: RawHttp) -> None:
    answer = await raw.ask("POST", "/v1/echo/bug")
    assert answer.status == 500
    assert b"incident-1" in answer.body
    assert b"secret" not in answer.body


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("POST", "/v1/echo/unknown", 404, "error.unimplemented"),
        ("POST", "/v1/echo", 404, "error.path_not_found"),
        ("POST", "/v1/echo/say/", 404, "error.path_not_found"),
        ("POST", "/v1//say", 404, "error.path_not_found"),
        ("POST", "/", 404, "error.path_not_found"),
        ("GET", "/", 404, "error.path_not_found"),
        ("GET", "/favicon.ico", 404, "error.path_not_found"),
        ("GET", "/v1/echo/say", 405, "error.method_not_allowed"),
        ("PUT", "/v1/echo/say", 405, "error.method_not_allowed"),
        ("DELETE", "/v1/echo/say", 405, "error.method_not_allowed"),
        ("OPTIONS", "/v1/echo/say", 405, "error.method_not_allowed"),
        ("PATCH", "/docs", 405, "error.method_not_allowed"),
        ("POST", "/v1/echo/talk", 404, "error.unimplemented"),
    ],
)
async def test_what_cannot_be_asked_is_refused_in_our_shape(
    raw: RawHttp, method: str, path: str, status: int, code: str
) -> None:
    answer = await raw.ask(method, path)
    assert answer.status == status
    assert answer.json()["code"] == code
    assert (status == 405) == ("allow" in answer.headers)


async def test_head_gets_a_status_without_a_body(raw: RawHttp) -> None:
    assert (await raw.ask("HEAD", "/v1/echo/say")).status == 405
    shown = await raw.ask("HEAD", "/docs")
    assert (shown.status, shown.body) == (200, b"")
    assert int(shown.headers["content-length"]) > 0
    assert (await raw.ask("POST", "/v1/echo/say", SAY)).status == 200


async def test_a_path_and_a_header_that_disagree_are_refused(raw: RawHttp) -> None:
    answer = await raw.ask("POST", "/v1/echo/say", SAY, Rpc_Procedure="echo::tell")
    assert answer.status == 400


async def test_a_page_of_another_site_may_not_call(node: Served, raw: RawHttp) -> None:
    answer = await raw.ask("POST", "/v1/echo/say", SAY, Sec_Fetch_Site="cross-site")
    assert answer.status == 403
    assert not node.echo.metas


async def test_a_target_may_be_a_whole_address(raw: RawHttp) -> None:
    assert (await raw.ask("POST", "http://relay.example:80/v1/echo/say", SAY)).status == 200
    assert (await raw.ask("GET", "HTTPS://relay.example")).status == 404


async def test_a_call_whose_own_wait_is_cancelled_is_answered(raw: RawHttp) -> None:
    answer = await raw.ask("POST", "/v1/echo/cancels", Rpc_Shard_Key="users")
    assert answer.status == 499
    assert answer.headers["rpc-shard-key"] == "users"
    assert answer.headers["rpc-protocol"]
    assert (await raw.ask("POST", "/v1/echo/say", SAY)).status == 200


async def test_a_namespace_may_be_percent_encoded(raw: RawHttp) -> None:
    assert (await raw.ask("POST", "/v1/%65cho/say", SAY)).status == 200


async def test_a_deadline_ends_a_call_that_waits(node: Served, raw: RawHttp) -> None:
    answer = await raw.ask("POST", "/v1/echo/wait", Rpc_Ttl_Ms="20")
    assert answer.status == 504
    assert node.echo.cancelled.is_set()


async def test_pipelined_calls_are_answered_in_order(raw: RawHttp) -> None:
    one = b"POST /v1/echo/say HTTP/1.1\r\ncontent-length: 14\r\n\r\n"
    await raw.send(b"".join(one + b'{"text":"%03d"}' % n for n in range(50)))
    texts = [(await raw.answer()).json()["text"] for _ in range(50)]
    assert texts == [f"{n:03d}" for n in range(50)]


async def test_a_caller_may_wait_for_leave_to_send_its_body(raw: RawHttp) -> None:
    await raw.send(
        b"POST /v1/echo/say HTTP/1.1\r\ncontent-length: 16\r\nexpect: 100-continue\r\n\r\n"
    )
    assert (await raw.head()).status == 100
    await raw.send(SAY)
    assert (await raw.answer()).body == SAY


async def test_an_offer_of_another_protocol_is_passed_over(raw: RawHttp) -> None:
    offer = {"Connection": "Upgrade, HTTP2-Settings", "Upgrade": "h2c", "HTTP2_Settings": "AAMA"}
    for _ in range(2):
        answer = await raw.ask("POST", "/v1/echo/say", SAY, **offer)
        assert (answer.status, answer.body) == (200, SAY)
    assert (await raw.ask("POST", "/v1/echo/say", SAY)).body == SAY


async def test_an_old_caller_gets_its_answer_and_the_end(raw: RawHttp) -> None:
    await raw.send(b"POST /v1/echo/say HTTP/1.0\r\ncontent-length: 16\r\n\r\n" + SAY)
    assert (await raw.answer()).body == SAY
    assert await raw.ending() == b""
