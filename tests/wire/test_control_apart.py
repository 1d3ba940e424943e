"""The control plane at a port of its own: nothing of it is left where the calls are."""

from pathlib import Path

import msgspec
import pytest

from omnirelay.model.errors import InvalidOption
from omnirelay.node.node import Node
from omnirelay.node.run import write_ready_file
from omnirelay.node.settings import check
from omnirelay.testing.raw_http import RawAnswer, RawHttp
from tests.wire.control_node import proxied
from tests.wire.real_node import node, node_settings
from tests.wire.test_control_access import CHANGES, READS

HEALTH = ("/healthz", "/readyz")
CALL = "/v1/resourcelease/stats"


async def answer(opened: Node, door: str, method: str, path: str, body: bytes = b"") -> RawAnswer:
    """Of a stream, which has no end, the head."""
    async with RawHttp(opened.urls[door]) as raw:
        if not path.endswith("/stream"):
            return await raw.ask(method, path, body)
        await raw.send(f"{method} {path} HTTP/1.1\r\nhost: test\r\n\r\n".encode())
        return await raw.head()


async def test_every_page_is_at_the_port_apart_and_none_but_health_beside_the_calls() -> None:
    async with node(control="127.0.0.1:0") as opened:
        assert opened.urls["control"] != opened.urls["http"]
        for path in READS:
            if path != "/assets/nothing.js":
                shown = (await answer(opened, "control", "GET", path)).status
                assert shown in (200, 204), path
            assert (await answer(opened, "http", "GET", path)).status == 404, path
        for path, body in CHANGES.items():
            assert (await answer(opened, "http", "POST", path, body)).status == 404, path
        for path in (*HEALTH, "/docs", "/openapi.json"):
            for door in ("http", "control"):
                assert (await answer(opened, door, "GET", path)).status == 200, path


async def test_calls_are_taken_where_the_control_plane_is_not() -> None:
    async with node(control="127.0.0.1:0") as opened:
        assert (await answer(opened, "http", "POST", CALL, b"{}")).status == 200
        refused = await answer(opened, "control", "POST", CALL, b"{}")
    assert refused.status == 404
    assert "takes no calls" in msgspec.json.decode(refused.body)["message"]


async def test_without_the_setting_the_pages_are_beside_the_calls() -> None:
    async with node() as opened:
        assert "control" not in opened.urls
        assert (await answer(opened, "http", "GET", "/omnirelay/introspect")).status == 200


async def test_a_node_without_http_may_have_a_control_plane() -> None:
    async with node(http="", control="127.0.0.1:0") as opened:
        assert (await answer(opened, "control", "GET", "/readyz")).status == 200


async def test_who_may_look_is_asked_at_the_port_apart_too() -> None:
    async with node(control="127.0.0.1:0", identity=proxied()) as opened:
        assert (await answer(opened, "control", "GET", "/metrics")).status == 401
        assert (await answer(opened, "control", "GET", "/healthz")).status == 200


async def test_the_ready_file_says_where_the_control_plane_is(tmp_path: Path) -> None:
    async with node(control="127.0.0.1:0") as opened:
        write_ready_file(tmp_path / "ready.json", opened)
        said = msgspec.json.decode((tmp_path / "ready.json").read_bytes())
        assert said["control"] == opened.urls["control"]


@pytest.mark.parametrize(
    ("place", "word"),
    [("0.0.0.0:0", "control would listen beyond loopback"), ("unix:/x", "HOST:PORT"), ("x", "x")],
)
def test_a_place_that_cannot_be_meant_is_refused(place: str, word: str) -> None:
    with pytest.raises(InvalidOption, match=word):
        check(node_settings(control=place))
