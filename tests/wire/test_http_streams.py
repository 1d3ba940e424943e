"""Streams over HTTP: events to read and resume, lines of JSON in both directions."""

import asyncio
from collections.abc import AsyncGenerator

import msgspec
import pytest

from omnirelay.testing.raw_http import RawHttp
from omnirelay.transports.http_events import EventReader, event_of
from omnirelay.transports.http_options import HttpOptions
from omnirelay.transports.http_pages import PageReply, PageRequest
from tests.wire.http_echo import Served, served, soon


@pytest.fixture
async def node() -> AsyncGenerator[Served]:
    async with served() as running:
        yield running


@pytest.fixture
async def raw(node: Served) -> AsyncGenerator[RawHttp]:
    async with RawHttp(node.url) as connected:
        yield connected


def ids_of(body: bytes) -> list[int]:
    return [int(line[4:]) for line in body.split(b"\n") if line.startswith(b"id: ")]


async def test_a_stream_is_read_as_events_with_numbers(raw: RawHttp) -> None:
    answer = await raw.ask("GET", "/v1/echo/count?from=2&tags=a&tags=b%26c")
    assert answer.headers["content-type"] == "text/event-stream"
    assert answer.headers["cache-control"] == "no-store"
    assert ids_of(answer.body) == [2, 3]
    messages = [data for _, data in EventReader().feed(answer.body)]
    assert messages[0] == b'{"sequenceNumber":2,"text":"a,b&c"}'


async def test_a_reader_resumes_after_the_last_event_it_has(raw: RawHttp) -> None:
    answer = await raw.ask("GET", "/v1/echo/count?from=1&upto=5", Last_Event_ID="3")
    assert ids_of(answer.body) == [4, 5]


@pytest.mark.parametrize("bad", ["", "-1", "abc", "9" * 30, "\u0661"])
async def test_a_last_event_that_is_no_number_is_refused(raw: RawHttp, bad: str) -> None:
    answer = await raw.ask("GET", "/v1/echo/count", Last_Event_ID=bad)
    assert answer.status == 400


@pytest.mark.parametrize("query", ["from=x", "upto=1.5", "&".join(f"a{n}=1" for n in range(200))])
async def test_a_bad_query_is_refused(raw: RawHttp, query: str) -> None:
    assert (await raw.ask("GET", f"/v1/echo/count?{query}")).status == 400


async def test_post_gives_one_message_a_line(raw: RawHttp) -> None:
    answer = await raw.ask("POST", "/v1/echo/count", b'{"from":1,"upto":2}')
    assert answer.headers["content-type"] == "application/x-ndjson"
    numbers = [msgspec.json.decode(line)["sequenceNumber"] for line in answer.body.splitlines()]
    assert numbers == [1, 2]
    assert (await raw.ask("POST", "/v1/echo/say", b"{}")).status == 200, "the connection goes on"


async def test_an_error_before_the_first_message_is_an_error_of_the_call(raw: RawHttp) -> None:
    answer = await raw.ask("GET", "/v1/echo/breaks?upto=0")
    assert answer.status == 412
    assert answer.json()["code"] == "error.taskqueue.lease_inactive"


async def test_a_later_error_is_the_last_thing_said(raw: RawHttp) -> None:
    events = await raw.ask("GET", "/v1/echo/breaks?upto=2")
    *_, (name, data) = EventReader().feed(events.body)
    assert name == "error"
    assert msgspec.json.decode(data)["status"] == "FAILED_PRECONDITION"
    lines = await raw.ask("POST", "/v1/echo/breaks", b'{"upto":2}')
    last = msgspec.json.decode(lines.body.splitlines()[-1])
    assert last["error"]["code"] == "error.taskqueue.lease_inactive"


async def test_a_reader_that_leaves_ends_the_stream_at_once(node: Served, raw: RawHttp) -> None:
    await raw.send(b"GET /v1/echo/follow HTTP/1.1\r\n\r\n")
    assert (await raw.head()).status == 200
    assert b'"sequenceNumber":1' in await raw.chunk()
    raw.leave()
    await soon(node.echo.closed)


async def test_a_stream_with_nothing_to_say_begins_and_shows_life() -> None:
    options = HttpOptions(comment_s=0.05)

    async def silent() -> AsyncGenerator[bytes]:
        await asyncio.Event().wait()
        yield b""

    async def watch(request: PageRequest) -> PageReply:
        return PageReply(stream=silent())

    async with served(options=options, pages={"/watch": watch}) as node, RawHttp(node.url) as raw:
        await raw.send(b"GET /watch HTTP/1.1\r\n\r\n")
        assert (await raw.head()).headers["content-type"] == "text/event-stream"
        assert [(await raw.chunk())[:1] for _ in range(3)] == [b":"] * 3


async def test_lines_of_json_come_in_as_they_arrive(node: Served, raw: RawHttp) -> None:
    await raw.send(b"POST /v1/echo/sum HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n")
    await raw.send(b'f\r\n{"text":"one"}\n\r\n')
    await soon(node.echo.waiting)
    assert node.echo.heard == ["one"]
    await raw.send(b'1\r\n\n\r\n8\r\n{"text":\r\n7\r\n"two"}\n\r\n0\r\n\r\n')
    answer = await raw.answer()
    assert answer.json() == {"text": "one+two", "count": 2}


async def test_the_last_line_needs_no_end(raw: RawHttp) -> None:
    answer = await raw.ask("POST", "/v1/echo/sum", b'{"text":"a"}\n{"text":"b"}')
    assert answer.json()["text"] == "a+b"


async def test_a_line_that_is_no_message_fails_the_call(raw: RawHttp) -> None:
    answer = await raw.ask("POST", "/v1/echo/sum", b'{"text":"a"}\n{"text":')
    assert answer.status == 400


async def test_streams_are_json_only(raw: RawHttp) -> None:
    assert (await raw.ask("POST", "/v1/echo/sum", b"\x80", Rpc_Encoding="msgpack")).status == 400


def test_an_event_survives_line_ends_and_any_cut() -> None:
    written = event_of(b'{\n"sequenceNumber": 7}', name="x") + b": comment\n\n" + event_of(b"{}")
    for step in (1, 2, 5, 100):
        reader = EventReader()
        pieces = (written[at : at + step] for at in range(0, len(written), step))
        read = [event for piece in pieces for event in reader.feed(piece)]
        assert read == [("x", b'{\n"sequenceNumber": 7}'), ("", b"{}")]
    assert ids_of(written) == [7]


@pytest.mark.parametrize("message", [b'{"sequenceNumber":"7"}', b'"sequenceNumber"', b"\xff{}"])
def test_a_message_without_a_number_has_no_id(message: bytes) -> None:
    assert ids_of(event_of(message)) == []
