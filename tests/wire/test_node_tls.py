"""TLS on a running node: client certificates as proof, and new certificates without a gap."""

import asyncio
import hashlib
import ssl
import warnings
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from omnirelay.identity.certificates import CertificateSettings
from omnirelay.identity.policy import GrantSettings, Role
from omnirelay.identity.settings import IdentitySettings
from omnirelay.identity.tls import TlsSettings
from omnirelay.mesh import wire
from omnirelay.model.errors import OmniRelayError, PermissionDenied
from omnirelay.node import node as node_module
from omnirelay.node.node import Node
from omnirelay.testing.authority import Authority, Issued
from omnirelay.transports.client_tls import Tls
from tests.wire.real_node import NAMESPACE, WIRES, Caller, caller, node

WORKER = "spiffe://prod.example/worker/7"
DOORS = {"http": None, "stream": None, "grpc": ["h2"]}


class Town:
    """One authority, a node's certificate in files, and clients that show theirs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authority = Authority()
        (folder / "ca.pem").write_bytes(self.authority.pem)
        self.revoke(until=timedelta(days=1))
        self.client = self.authority.issue("worker", [WORKER])
        self.stranger = self.authority.issue("x", ["spiffe://prod.example/stranger"])
        self.files = self.renew()

    def revoke(self, *, until: timedelta) -> None:
        """A list of nobody, for so long."""
        (self.folder / "crl.pem").write_bytes(self.authority.revocations(next_update=until))

    def renew(self) -> tuple[str, str]:
        self.server = self._issue()
        return self.server.write(self.folder, "server")

    def _issue(self) -> Issued:
        return self.authority.issue("node", ["localhost", "127.0.0.1"], usage="server")

    def identity(self) -> IdentitySettings:
        cert, key = self.files
        return IdentitySettings(
            tls=TlsSettings(
                cert_file=cert,
                key_file=key,
                client_ca_file=str(self.folder / "ca.pem"),
                crl_file=str(self.folder / "crl.pem"),
                require_client_certificate=True,
            ),
            certificates=CertificateSettings(trust_domains=("prod.example",)),
            roles=(GrantSettings(role=Role.PEER, principals=(WORKER,), namespaces=(NAMESPACE,)),),
        )

    def shows(self, client: Issued) -> dict[str, Any]:
        """How a caller of that certificate connects, whatever the wire. Any: see `caller`."""
        cert, key = client.write(self.folder, f"client-{client.thumbprint[:8]}")
        tls = Tls(ca_file=str(self.folder / "ca.pem"), cert_file=cert, key_file=key)
        return {"tls": tls.context, "pem": tls.pem}

    async def shown_at(self, opened: Node, door: str) -> str:
        """Thumbprint of what a new connection is shown."""
        shown = (await self.shake(opened, door)).getpeercert(binary_form=True)
        assert shown is not None
        return hashlib.sha256(shown).hexdigest()

    async def shake(
        self, opened: Node, door: str, version: ssl.TLSVersion | None = None
    ) -> ssl.SSLObject:
        """A handshake with that door, in any version or in one. Raises SSLError, or
        ConnectionError if the node just hangs up."""
        context = self.shows(self.client)["tls"]()
        assert isinstance(context, ssl.SSLContext)
        if (protocols := DOORS[door]) is not None:
            context.set_alpn_protocols(protocols)
        if version is not None:
            speak_only(context, version)
        at = urlsplit(opened.urls[door])
        _, writer = await asyncio.open_connection(
            at.hostname, at.port, ssl=context, server_hostname="localhost"
        )
        secured: ssl.SSLObject = writer.get_extra_info("ssl_object")
        writer.transport.abort()
        return secured


def speak_only(context: ssl.SSLContext, version: ssl.TLSVersion) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        context.minimum_version = context.maximum_version = version
    context.set_ciphers("DEFAULT:@SECLEVEL=0")  # or this end would not even ask for an old one


@pytest.fixture
def town(tmp_path: Path) -> Town:
    return Town(tmp_path)


@pytest.mark.parametrize("over", WIRES)
async def test_a_client_certificate_is_proof_over_every_wire(town: Town, over: str) -> None:
    async with node(identity=town.identity()) as opened:
        async with caller(opened, over, **town.shows(town.client)) as call:
            await call.enqueue("a")
            lease = await call.lease()
            view = await call("inspect", wire.InspectRequest(sequence_id=1))
        async with caller(opened, over, **town.shows(town.stranger)) as call:
            with pytest.raises(PermissionDenied):
                await call.stats()
    assert (lease.owner_peer_id, view.principal) == (WORKER, WORKER)
    proofs = {event.metadata["principal.proof"] for event in view.history}
    assert proofs == {town.client.thumbprint}


@asynccontextmanager
async def busy(call: Caller) -> AsyncGenerator[list[OmniRelayError]]:
    """Calls without end beside the test; all that goes wrong."""
    failures: list[OmniRelayError] = []

    async def ask() -> None:
        while True:
            try:
                await call.enqueue("x")
            except OmniRelayError as error:
                failures.append(error)
            await asyncio.sleep(0.002)

    task = asyncio.create_task(ask())
    yield failures
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


@pytest.mark.parametrize("door", DOORS)
async def test_new_certificates_are_shown_without_a_gap(
    town: Town, door: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_module, "RELOAD_S", 0.05)
    async with (
        node(identity=town.identity()) as opened,
        caller(opened, door, **town.shows(town.client)) as old,
        busy(old) as failures,
    ):
        first = town.server.thumbprint
        assert await town.shown_at(opened, door) == first
        town.renew()
        async with asyncio.timeout(10):
            while (shown := await town.shown_at(opened, door)) == first:
                continue
        assert shown == town.server.thumbprint
        async with caller(opened, door, **town.shows(town.client)) as new:
            await new.stats()
        await old.stats()  # connections that were open stay open
    assert failures == []


async def test_a_pair_that_does_not_fit_changes_nothing(
    town: Town, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(node_module, "RELOAD_S", 0.02)
    async with node(identity=town.identity()) as opened:
        first = town.server.thumbprint
        Path(town.files[0]).write_bytes(town._issue().cert_pem)  # of another key
        async with asyncio.timeout(10):
            while "certificates stay as they were" not in caplog.text:
                assert await town.shown_at(opened, "http") == first
        assert {await town.shown_at(opened, door) for door in DOORS} == {first}
        town.renew()
        async with asyncio.timeout(10):
            for door in DOORS:
                while await town.shown_at(opened, door) != town.server.thumbprint:
                    continue


@pytest.mark.parametrize("over", WIRES)
async def test_nobody_gets_in_without_the_certificate_that_is_asked_for(
    town: Town, over: str
) -> None:
    foreign = Authority("Another authority").issue("worker", [WORKER])
    async with (
        node(identity=town.identity()) as opened,
        caller(opened, over, **town.shows(foreign)) as call,
    ):
        with pytest.raises(OmniRelayError) as refused:
            await call.stats()
    assert refused.value.status in ("UNAVAILABLE", "UNAUTHENTICATED")


@pytest.mark.parametrize("over", WIRES)
async def test_a_revocation_list_past_its_next_update_refuses_everybody_over_every_wire(
    town: Town, over: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_module, "RELOAD_S", 0.02)
    async with node(identity=town.identity()) as opened:
        async with caller(opened, over, **town.shows(town.client)) as call:
            await call.stats()
        town.revoke(until=-timedelta(hours=1))
        refused: OmniRelayError | None = None
        async with asyncio.timeout(10):
            while refused is None:
                async with caller(opened, over, **town.shows(town.client)) as call:
                    try:
                        await call.stats()
                    except OmniRelayError as error:
                        refused = error
    assert refused.status in ("UNAVAILABLE", "UNAUTHENTICATED")


@pytest.mark.parametrize("door", DOORS)
async def test_tls_1_1_is_refused_at_every_door(town: Town, door: str) -> None:
    async with node(identity=town.identity()) as opened:
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await town.shake(opened, door, ssl.TLSVersion.TLSv1_1)
        assert (await town.shake(opened, door)).version() == "TLSv1.3"


@pytest.mark.parametrize("door", DOORS)
async def test_tls_1_2_with_client_certificates_is_spoken_by_grpc_alone(
    town: Town, door: str
) -> None:
    """It keeps its own TLS and cannot be told; a certificate is looked at with every call there."""
    async with node(identity=town.identity()) as opened:
        if door == "grpc":
            secured = await town.shake(opened, door, ssl.TLSVersion.TLSv1_2)
            assert secured.version() == "TLSv1.2"
            return
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await town.shake(opened, door, ssl.TLSVersion.TLSv1_2)
