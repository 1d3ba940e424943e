"""Who is believed from where, and what is left of a call behind the door."""

import logging

import pytest

from omnirelay.identity.settings import (
    Identity,
    IdentitySettings,
    build_identity,
    read_settings,
)
from omnirelay.model.errors import InvalidArgument, Unauthenticated
from omnirelay.model.items import ANONYMOUS
from omnirelay.model.ports import SystemClock
from omnirelay.rpc.meta import Certificate, RequestMeta

CLOCK = SystemClock()
BOB = {"x-client-principal": "bob"}
PROXY = Certificate("CN=proxy", (), "aa" * 32)
WORKER = Certificate("CN=bob", (), "bb" * 32)


def behind(*networks: str, **more: object) -> Identity:
    settings = IdentitySettings(trusted_proxies=networks, **more)  # type: ignore[arg-type]
    return build_identity(settings, CLOCK)


def call(address: str = "127.0.0.1", **more: object) -> RequestMeta:
    given: dict[str, object] = {"headers": BOB, "address": address, **more}
    return RequestMeta(procedure="q::stats", transport="memory", **given)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "address",
    [
        "10.1.2.3",
        "10.1.2.3:55555",
        "::ffff:10.1.2.3",
        "[::ffff:10.1.2.3]:55555",
        "fd00::7",
        "[fd00::7]:55555",
        "fd00::7%eth0",
    ],
)
async def test_a_proxy_is_believed_from_its_network(address: str) -> None:
    identity = behind("10.0.0.0/8", "fd00::/8", proxy_plaintext=True)
    assert (await identity.prove(call(address))).principal == "bob"


@pytest.mark.parametrize(
    "address",
    [
        "",
        "11.0.0.1",
        "127.0.0.1",
        "::1",
        "fe80::1",
        "unix",
        "/run/relay.sock",
        "10.0.0",
        "10.1.2.3.4",
    ],
)
async def test_anybody_else_is_not(address: str) -> None:
    identity = behind("10.0.0.0/8", "fd00::/8", proxy_plaintext=True)
    with pytest.raises(Unauthenticated, match="without a proof"):
        await identity.prove(call(address))


async def test_a_listed_address_is_not_enough_where_others_can_write_on_the_line() -> None:
    identity = behind("10.0.0.0/8", "127.0.0.0/8")
    with pytest.raises(Unauthenticated):
        await identity.prove(call("10.1.2.3"))
    assert (await identity.prove(call("127.0.0.1"))).principal == "bob"


async def test_proxies_whose_certificates_are_listed_must_show_one() -> None:
    identity = behind("10.0.0.0/8", proxy_principals=["CN=proxy"], proxy_plaintext=True)
    assert (await identity.prove(call("10.1.2.3", certificate=PROXY))).principal == "bob"
    with pytest.raises(Unauthenticated):
        await identity.prove(call("10.1.2.3"))
    # Another's certificate proves that other, whatever the header says.
    assert (await identity.prove(call("10.1.2.3", certificate=WORKER))).principal == "CN=bob"


async def test_a_proxys_certificate_from_a_strange_address_speaks_for_nobody() -> None:
    identity = behind("10.0.0.0/8", proxy_principals=["CN=proxy"])
    with pytest.raises(Unauthenticated):
        await identity.prove(call("11.0.0.1", certificate=PROXY))


async def test_the_proof_is_the_thumbprint() -> None:
    identity = behind("127.0.0.0/8")
    headers = {**BOB, "x-mtls-thumbprint": "AB:" * 31 + "AB"}
    assert (await identity.prove(call(headers=headers))).proof == "ab" * 32
    own = await identity.prove(call("", headers={}, certificate=WORKER))
    assert (own.principal, own.proof) == ("CN=bob", "bb" * 32)


async def test_a_proxy_may_use_headers_of_its_own_and_the_usual_ones_are_then_nobodys() -> None:
    headers = {"principal": "x-user", "subject": "", "thumbprint": "x-fingerprint"}
    section = {"trusted_proxies": ["127.0.0.0/8"], "headers": headers}
    identity = build_identity(read_settings(section), CLOCK)
    proved = await identity.prove(call(headers={"x-user": "carol", **BOB, "x-mtls-subject": "x"}))
    assert proved.principal == "carol"
    assert proved.headers == {}
    with pytest.raises(Unauthenticated):
        await identity.prove(call(headers=BOB))


async def test_nothing_that_names_somebody_or_is_secret_gets_behind_the_door() -> None:
    kept = {"rpc-caller": "billing", "x-peer-id": "w-1", "rpc-shard-key": "k", "traceparent": "00"}
    dropped = {
        "authorization",
        "Authorization",
        "proxy-authorization",
        "proxy_authorization",
        "cookie",
        "x-mtls-subject",
        "x-mtls-thumbprint",
        "x-client-principal",
        "X_Client_Principal",
        "x_peer_id",
        "X-Peer-Id",
        "x-forwarded-for",
        "x_forwarded_for",
        "forwarded",
        "rpc.principal",
        "x-mesh-scope",
        "x-mesh-role",
        "x-real-ip",
    }
    identity = build_identity(IdentitySettings(), CLOCK)
    headers = {**kept, **dict.fromkeys(dropped, "hunter2")}
    proved = await identity.prove(call(headers=headers, peer_id="w-1"))
    assert proved.headers == kept
    assert proved.peer_id == "w-1"
    assert "hunter2" not in repr(proved)


async def test_without_identity_everybody_is_anonymous_and_may_do_everything() -> None:
    identity = build_identity(IdentitySettings(), CLOCK)
    assert not identity.is_on
    spoofed = call(certificate=WORKER, principal="root", proof="00")
    proved = await identity.prove(spoofed)
    assert (proved.principal, proved.proof) == (ANONYMOUS, None)
    assert identity.policy.allows(ANONYMOUS, "control", "change")


async def test_what_a_transport_put_in_for_the_principal_is_not_believed() -> None:
    with pytest.raises(Unauthenticated):
        await behind("10.0.0.0/8").prove(call(headers={}, principal="root", proof="00"))


async def test_a_doubled_identity_header_is_refused_even_without_identity() -> None:
    identity = build_identity(IdentitySettings(), CLOCK)
    for name in ("authorization", "x-peer-id", "x-client-principal", "X_Client_Principal"):
        with pytest.raises(Unauthenticated, match="more than once"):
            await identity.prove(call(doubled=frozenset({name})))
    await identity.prove(call(doubled=frozenset({"accept"})))


async def test_a_peer_id_that_would_garble_a_log_is_refused() -> None:
    identity = build_identity(IdentitySettings(), CLOCK)
    with pytest.raises(InvalidArgument, match="x-peer-id"):
        await identity.prove(call(peer_id="w\n1"))


async def test_a_refusal_is_logged_with_its_reason_and_source_and_without_what_was_said(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "omnirelay")  # whatever a node of another test has set
    with pytest.raises(Unauthenticated):
        await behind("10.0.0.0/8").prove(
            call("192.0.2.7", headers={"authorization": "Basic hunter2", **BOB})
        )
    assert "192.0.2.7" in caplog.text
    assert "bearer token" in caplog.text
    assert "hunter2" not in caplog.text
    assert "bob" not in caplog.text
