"""HTTPS: the node's certificate, and a caller's that reaches the call."""

import pytest
import trustme

from omnirelay.model.errors import Unavailable
from omnirelay.model.ports import SystemClock
from omnirelay.rpc.meta import Request, RequestMeta, Response
from omnirelay.testing.raw_http import RawHttp
from omnirelay.transports.http_options import HttpOptions
from omnirelay.transports.http_outbound import HttpOutbound
from tests.wire.authority import Authority, read
from tests.wire.http_echo import served

REQUEST = Request(meta=RequestMeta(procedure="echo::say", transport="http"), body=b"{}")


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


async def test_a_call_over_tls(authority: Authority) -> None:
    async with served(tls=authority.node()) as node:
        assert node.url.startswith("https://")
        call = HttpOutbound(node.url, clock=SystemClock(), tls=authority.caller)
        reply = await call(REQUEST)
        await call.stop()
    assert isinstance(reply, Response)
    assert node.echo.metas[0].certificate is None


async def test_the_certificate_of_a_caller_reaches_its_calls(authority: Authority) -> None:
    async with served(tls=authority.node(asks=True), read_certificate=read) as node:
        tls = authority.caller("worker.example")
        async with RawHttp(node.url, tls=tls) as raw:
            for _ in range(2):
                assert (await raw.ask("POST", "/v1/echo/say", b"{}")).status == 200
    first, second = (meta.certificate for meta in node.echo.metas)
    assert first is not None
    assert first.subject == "read"
    assert second is first, "read once a connection"


@pytest.mark.parametrize("who", ["nobody", "stranger"])
async def test_a_caller_without_a_trusted_certificate_gets_nowhere(
    authority: Authority, who: str
) -> None:
    tls = authority.caller()
    if who == "stranger":
        trustme.CA().issue_cert("worker.example").configure_cert(tls)
    async with served(tls=authority.node(asks=True), read_certificate=read) as node:
        call = HttpOutbound(node.url, clock=SystemClock(), tls=lambda: tls)
        with pytest.raises(Unavailable):
            await call(REQUEST)
        await call.stop()
    assert not node.echo.metas


async def test_a_node_nobody_vouches_for_is_not_called(authority: Authority) -> None:
    async with served(tls=authority.node()) as node:
        call = HttpOutbound(node.url, clock=SystemClock())
        with pytest.raises(Unavailable, match="cannot be reached"):
            await call(REQUEST)
        await call.stop()
    assert not node.echo.metas


async def test_plain_text_on_the_tls_port_is_cut_off(authority: Authority) -> None:
    options = HttpOptions(head_s=0.3)
    async with served(tls=authority.node(), options=options) as node:
        async with RawHttp(node.url) as raw:
            await raw.send(b"POST /v1/echo/say HTTP/1.1\r\n\r\n")
            await raw.ending()
        async with RawHttp(node.url) as silent:
            await silent.ending()
        async with RawHttp(node.url, tls=authority.caller()) as raw:
            assert (await raw.ask("POST", "/v1/echo/say", b"{}")).status == 200
