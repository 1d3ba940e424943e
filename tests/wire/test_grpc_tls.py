"""TLS over gRPC: who is let in, who is known, and how certificates change under way."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest
import trustme

from omnirelay.identity.certificates import certificate_of
from omnirelay.model.errors import InvalidOption, Unauthenticated, Unavailable
from omnirelay.rpc.codec import JSON
from omnirelay.rpc.meta import Certificate, Response
from omnirelay.transports.client_tls import Pem
from omnirelay.transports.grpc_outbound import GrpcOutbound
from tests.wire.grpc_served import Node, asking, served
from tests.wire.http_echo import Say, soon

AUTHORITY = trustme.CA()
SERVER = AUTHORITY.issue_cert("127.0.0.1", "localhost")


def pem(leaf: trustme.LeafCert | None, ca: trustme.CA | None) -> Pem:
    trusted = None if ca is None else ca.cert_pem.bytes()
    if leaf is None:
        return None, None, trusted
    chain = b"".join(blob.bytes() for blob in leaf.cert_chain_pems)
    return leaf.private_key_pem.bytes(), chain, trusted


@asynccontextmanager
async def calling(
    node: Node, secrets: Callable[[], Pem] | None, **options: Any
) -> AsyncGenerator[GrpcOutbound]:
    outbound = GrpcOutbound(node.target, clock=node.echo.clock, tls=secrets, **options)
    await outbound.start()
    try:
        yield outbound
    finally:
        await outbound.stop()


async def say(node: Node, secrets: Callable[[], Pem] | None, **options: Any) -> Certificate | None:
    """What the node knows about the caller after a call."""
    async with calling(node, secrets, **options) as outbound:
        await outbound(asking("echo::say", Say(), outbound))
    return node.echo.metas[-1].certificate


async def test_a_caller_that_trusts_the_authority_is_served() -> None:
    async with served(tls=lambda: pem(SERVER, None)) as node:
        assert node.inbound.url.startswith("grpcs://127.0.0.1:")
        assert await say(node, lambda: pem(None, AUTHORITY)) is None
        assert await say(node, lambda: pem(None, AUTHORITY), server_name="localhost") is None


async def test_a_caller_without_tls_or_trust_gets_nowhere() -> None:
    async with served(tls=lambda: pem(SERVER, None)) as node:
        for secrets in (None, lambda: pem(None, trustme.CA()), lambda: pem(None, None)):
            with pytest.raises(Unavailable):
                await say(node, secrets)
        with pytest.raises(Unavailable):
            await say(node, lambda: pem(None, AUTHORITY), server_name="elsewhere")
        assert node.echo.metas == []


async def test_the_certificate_of_a_caller_is_known_to_every_call() -> None:
    client = AUTHORITY.issue_cert("worker.example", common_name="worker")
    reads: list[bytes] = []

    def read(der: bytes) -> Certificate:
        reads.append(der)
        return certificate_of(der)

    async with served(tls=lambda: pem(SERVER, AUTHORITY), read_certificate=read) as node:
        async with calling(node, lambda: pem(client, AUTHORITY)) as outbound:
            for _ in range(3):
                await outbound(asking("echo::say", Say(), outbound))
        known = {meta.certificate for meta in node.echo.metas}
        node.inbound.reload_tls()
        await say(node, lambda: pem(client, AUTHORITY))
    assert [one.names for one in known if one is not None] == [("worker.example",)]
    assert len(reads) == 2, "once, and once more after a reload"


async def test_a_caller_without_a_certificate_of_the_authority_gets_nowhere() -> None:
    strangers = trustme.CA().issue_cert("worker.example")
    async with served(tls=lambda: pem(SERVER, AUTHORITY), read_certificate=certificate_of) as node:
        for leaf in (None, strangers):
            with pytest.raises(Unavailable):
                await say(node, partial(pem, leaf, AUTHORITY))
        assert node.echo.metas == []


async def test_a_certificate_that_is_refused_refuses_the_call() -> None:
    def refuse(der: bytes) -> Certificate:
        raise Unauthenticated("the certificate is revoked")

    client = AUTHORITY.issue_cert("worker.example")
    async with served(tls=lambda: pem(SERVER, AUTHORITY), read_certificate=refuse) as node:
        with pytest.raises(Unauthenticated, match="revoked"):
            await say(node, lambda: pem(client, AUTHORITY))


async def test_new_connections_get_new_certificates_and_old_ones_go_on() -> None:
    other = trustme.CA()
    current = [pem(SERVER, None)]
    async with (
        served(tls=lambda: current[0]) as node,
        calling(node, lambda: pem(None, AUTHORITY)) as kept,
    ):
        await kept(asking("echo::say", Say(), kept))
        current[0] = pem(other.issue_cert("127.0.0.1"), None)
        node.inbound.reload_tls()
        await say(node, lambda: pem(None, other))
        with pytest.raises(Unavailable):
            await say(node, lambda: pem(None, AUTHORITY))
        await kept(asking("echo::say", Say(), kept))


async def test_a_caller_with_new_secrets_calls_anew_and_hears_the_end_of_what_it_had_begun() -> (
    None
):
    clients = [AUTHORITY.issue_cert(f"{name}.example") for name in ("old", "new")]
    current = [pem(clients[0], AUTHORITY)]
    async with (
        served(tls=lambda: pem(SERVER, AUTHORITY), read_certificate=certificate_of) as node,
        calling(node, lambda: current[0]) as outbound,
    ):
        begun = asyncio.ensure_future(outbound(asking("echo::wait", Say("old"), outbound)))
        await soon(node.echo.waiting)
        current[0] = pem(clients[1], AUTHORITY)
        await outbound(asking("echo::say", Say(), outbound))
        node.echo.go_on.set()
        reply = await begun
    certificate = node.echo.metas[-1].certificate
    assert certificate is not None
    assert certificate.names == ("new.example",)
    assert isinstance(reply, Response)
    assert JSON.decode(reply.body, Say).text == "old"


async def test_a_reload_that_cannot_work_changes_nothing() -> None:
    mixed = pem(SERVER, None)[0], pem(AUTHORITY.issue_cert("127.0.0.1"), None)[1], None
    current = [pem(SERVER, None)]
    async with served(tls=lambda: current[0]) as node:
        for bad in ((None, None, None), pem(SERVER, AUTHORITY)):
            current[0] = bad
            with pytest.raises(InvalidOption):
                node.inbound.reload_tls()
        current[0] = mixed
        node.inbound.reload_tls()
        for _ in range(2):
            await say(node, lambda: pem(None, AUTHORITY))


@pytest.mark.parametrize("left_out", [0, 1], ids=["key", "chain"])
async def test_half_a_pair_is_refused(left_out: int) -> None:
    whole = pem(SERVER, AUTHORITY)
    half = (None, *whole[1:]) if left_out == 0 else (whole[0], None, whole[2])
    async with served() as node:
        outbound = GrpcOutbound(node.target, clock=node.echo.clock, tls=lambda: half)
        with pytest.raises(InvalidOption):
            await outbound.start()
