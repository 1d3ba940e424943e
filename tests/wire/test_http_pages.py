"""Pages beside the calls: where they are found, what they get, and the two that describe a node."""

from collections.abc import AsyncGenerator, Iterator

import msgspec
import pytest

from omnirelay.model.errors import InvalidOption, PermissionDenied
from omnirelay.testing.raw_http import RawHttp
from omnirelay.transports.http_pages import PageReply, PageRequest, Pages
from tests.wire.http_echo import served


async def show(request: PageRequest) -> PageReply:
    seen = f"{request.method} {request.path} {dict(request.query)} {request.body!r}"
    return PageReply(status=201, headers={"content-type": "text/plain"}, body=seen.encode())


async def deny(request: PageRequest) -> PageReply:
    raise PermissionDenied("not you")


async def fail(request: PageRequest) -> PageReply:
    raise RuntimeError("the secret of the house")


async def inject(request: PageRequest) -> PageReply:
    return PageReply(headers={"x": "a\r\nset-cookie: b"})


async def watch(request: PageRequest) -> PageReply:
    async def events() -> AsyncGenerator[bytes]:
        yield b"data: {}\n\n"

    return PageReply(stream=events())


PAGES = {
    "/": show,
    "/watch": watch,
    "/a/*": show,
    "/a/deny": deny,
    "/fail": fail,
    "/inject": inject,
}


async def test_a_page_gets_all_of_its_request() -> None:
    async with served(pages=PAGES) as node, RawHttp(node.url) as raw:
        answer = await raw.ask("PUT", "/a/b%20c?x=1&y=%C3%BC&x=2", b"body")
    assert answer.status == 201
    assert answer.body.decode() == "PUT /a/b c {'x': '2', 'y': 'ü'} b'body'"
    assert answer.headers["x-content-type-options"] == "nosniff"


async def test_an_exact_path_comes_before_a_prefix_and_no_page_is_404() -> None:
    async with served(pages=PAGES) as node, RawHttp(node.url) as raw:
        paths = ("/", "/a/", "/a/deny", "/a/deny/b", "/a", "/nowhere")
        statuses = [(await raw.ask("GET", path)).status for path in paths]
    assert statuses == [201, 201, 403, 201, 404, 404]


async def test_a_page_may_be_a_stream() -> None:
    async with served(pages=PAGES) as node, RawHttp(node.url) as raw:
        looked = await raw.ask("HEAD", "/watch")
        read = await raw.ask("GET", "/watch")
    assert looked.headers["content-type"] == read.headers["content-type"] == "text/event-stream"
    assert read.body == b"data: {}\n\n"


@pytest.mark.parametrize("path", ["/fail", "/inject"])
async def test_a_page_with_a_bug_tells_nothing(path: str) -> None:
    async with served(pages=PAGES) as node, RawHttp(node.url) as raw:
        answer = await raw.ask("GET", path)
        assert b"secret" not in answer.body
        assert "set-cookie" not in answer.headers
        assert answer.status == 500
        assert (await raw.ask("GET", "/")).status == 201


@pytest.mark.parametrize("path", ["relative", "", "/v1/a", "/v1/*"])
def test_a_page_cannot_hide_a_call(path: str) -> None:
    with pytest.raises(InvalidOption):
        Pages({path: show})


async def test_openapi_describes_every_call_but_duplex() -> None:
    async with served() as node, RawHttp(node.url) as raw:
        document = (await raw.ask("GET", "/openapi.json")).json()
    assert document["openapi"] == "3.1.0"
    paths = msgspec.convert(document["paths"], dict[str, dict[str, object]])
    assert set(paths["/v1/echo/say"]) == {"post"}
    assert set(paths["/v1/echo/count"]) == {"get", "post"}
    assert "/v1/echo/talk" not in paths
    responses = msgspec.convert(paths["/v1/echo/say"]["post"], dict[str, object])["responses"]
    assert set(msgspec.convert(responses, dict[str, object])) == {"200", "204", "default"}


async def test_every_reference_in_openapi_leads_somewhere() -> None:
    async with served() as node, RawHttp(node.url) as raw:
        document = (await raw.ask("GET", "/openapi.json")).json()
    found = list(references(document))
    assert found
    for reference in found:
        place: object = document
        for part in reference.removeprefix("#/").split("/"):
            assert isinstance(place, dict)
            place = place[part]


def references(node: object) -> Iterator[str]:
    if isinstance(node, dict):
        if isinstance(node.get("$ref"), str):
            yield node["$ref"]
        node = list(node.values())
    if isinstance(node, list):
        for child in node:
            yield from references(child)


async def test_the_docs_show_how_to_call_and_run_no_script() -> None:
    async with served() as node, RawHttp(node.url) as raw:
        answer = await raw.ask("GET", "/docs")
        text = answer.body.decode()
        assert "curl http://127.0.0.1:7400/v1/echo/say" in text
        assert "Says &lt;it&gt; again." in text
        assert "<script" not in text
        assert answer.headers["content-security-policy"].startswith("default-src 'none'")


async def test_a_procedure_added_later_is_described_too() -> None:
    async with served() as node, RawHttp(node.url) as raw:
        await raw.ask("GET", "/openapi.json")
        node.echo.registry.unary("later::<b>", node.echo.say, dict, dict)  # type: ignore[arg-type]
        assert b"/v1/later/" in (await raw.ask("GET", "/openapi.json")).body
        assert b"<b>" not in (await raw.ask("GET", "/docs")).body
