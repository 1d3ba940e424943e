"""A caller's TLS: its files may be replaced while it is connected, and a server may be known by its
SPIFFE id."""

import asyncio
import logging
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import uvloop

import omnirelay
from omnirelay.identity.certificates import CertificateSettings
from omnirelay.identity.policy import GrantSettings, Role
from omnirelay.identity.settings import IdentitySettings
from omnirelay.identity.tls import TlsSettings
from omnirelay.model.errors import InvalidOption, Unavailable
from omnirelay.node import node as node_module
from omnirelay.node.node import Node
from omnirelay.testing.authority import Authority, Issued
from omnirelay.transports import client_tls
from omnirelay.transports.client_tls import Tls
from tests.wire.proxies import proxied
from tests.wire.real_node import NAMESPACE, node

if TYPE_CHECKING:
    from collections.abc import Callable

WIRES = ("stream", "http", "grpc")
NAMING = ("stream", "http")
WORKER = "spiffe://prod.example/worker/7"
NODE = "spiffe://prod.example/omnirelay/a"
HOST = ("localhost", "127.0.0.1")
BOUND_S = 15.0
STAYS = "the last TLS files that fitted stay in use"


class Site:
    """The files of a node and of a client, and who signs them now."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.authority = Authority()
        self.server_files = ("", "")
        self.client_files = ("", "")
        self.ca = folder / "client-ca.pem"
        self.renew_server()
        self.renew_client()

    def renew_server(self, *names: str) -> Issued:
        issued = self.authority.issue("node", names or HOST, usage="server")
        self.server_files = issued.write(self._folder, "server")
        (self._folder / "server-ca.pem").write_bytes(self.authority.pem)
        return issued

    def renew_client(self) -> None:
        issued = self.authority.issue("worker", [WORKER], usage="client")
        self.client_files = issued.write(self._folder, "client")
        self.ca.write_bytes(self.authority.pem)

    def identity(self) -> IdentitySettings:
        cert, key = self.server_files
        return IdentitySettings(
            tls=TlsSettings(
                cert_file=cert,
                key_file=key,
                client_ca_file=str(self._folder / "server-ca.pem"),
                require_client_certificate=True,
            ),
            certificates=CertificateSettings(trust_domains=("prod.example",)),
            roles=(GrantSettings(role=Role.PEER, principals=(WORKER,), namespaces=(NAMESPACE,)),),
        )

    def tls(self, server_id: str | None = None) -> Tls:
        cert, key = self.client_files
        return Tls(ca_file=str(self.ca), cert_file=cert, key_file=key, server_id=server_id)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    monkeypatch.setattr(node_module, "RELOAD_S", 0.05)
    monkeypatch.setattr(client_tls, "LOOK_MS", 0)
    return Site(tmp_path)


async def _enqueue(relay: omnirelay.Relay, name: str) -> None:
    async with asyncio.timeout(BOUND_S):
        await relay.enqueue("table", name)


@pytest.mark.parametrize("over", WIRES)
async def test_a_client_goes_on_with_new_files_under_a_new_authority(
    site: Site, over: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="omnirelay")
    async with (
        node(identity=site.identity()) as opened,
        proxied(opened.urls[over]) as proxy,
        omnirelay.connect(proxy.url, tls=site.tls(), retry=BOUND_S) as relay,
    ):
        await _enqueue(relay, "a")
        site.authority = Authority("The next authority")
        site.renew_server()
        async with asyncio.timeout(BOUND_S):
            while "certificates reloaded" not in caplog.text:
                await relay.stats()
        site.renew_client()
        proxy.cut()
        await _enqueue(relay, "b")
    assert STAYS not in caplog.text


@pytest.mark.parametrize("over", WIRES)
async def test_files_that_do_not_fit_leave_the_last_good_ones_in_use(
    site: Site, over: str, caplog: pytest.LogCaptureFixture
) -> None:
    cert, key = map(Path, site.client_files)
    good = cert.read_bytes(), key.read_bytes(), site.ca.read_bytes()
    bad: dict[str, Callable[[], object]] = {
        "another key's certificate": lambda: cert.write_bytes(
            site.authority.issue("worker", [WORKER]).cert_pem
        ),
        "half a certificate": lambda: cert.write_bytes(good[0][:200]),
        "an empty key": lambda: key.write_bytes(b""),
        "half an authority": lambda: site.ca.write_bytes(good[2][:200]),
        "no file": key.unlink,
    }
    async with (
        node(identity=site.identity()) as opened,
        proxied(opened.urls[over]) as proxy,
        omnirelay.connect(proxy.url, tls=site.tls(), retry=BOUND_S) as relay,
    ):
        for name, spoil in bad.items():
            await _enqueue(relay, name)
            caplog.clear()
            spoil()
            for _ in range(2):
                proxy.cut()
                await _enqueue(relay, name)
            said = [one.getMessage() for one in caplog.records if STAYS in one.getMessage()]
            assert len(said) == 1, name
            for path, content in zip((cert, key, site.ca), good, strict=True):
                path.write_bytes(content)


def test_files_that_cannot_be_used_at_all_are_refused_at_once(site: Site) -> None:
    site.ca.write_bytes(b"nonsense")
    with pytest.raises(InvalidOption, match="TLS files"):
        omnirelay.connect("streams://127.0.0.1:1", tls=site.tls())


# -- servers by their SPIFFE id -----------------------------------------------------------------


async def _stats(opened: Node, over: str, tls: Tls) -> None:
    calling = omnirelay.connect(opened.urls[over], tls=tls, retry=0)
    async with calling as relay, asyncio.timeout(BOUND_S):
        await relay.stats()


@pytest.mark.parametrize("over", NAMING)
@pytest.mark.parametrize("server_id", [NODE, "spiffe://prod.example/omnirelay/*"])
async def test_a_server_is_known_by_its_id_whatever_its_host_is_called(
    site: Site, over: str, server_id: str
) -> None:
    site.renew_server(NODE, "somewhere.else.example", "https://prod.example/no-id")
    async with node(identity=site.identity()) as opened:
        await _stats(opened, over, site.tls(server_id))
        with pytest.raises(Unavailable, match=r"IP address mismatch|127\.0\.0\.1"):
            await _stats(opened, over, site.tls())


@pytest.mark.parametrize("over", NAMING)
@pytest.mark.parametrize(
    ("names", "why"),
    [
        (("spiffe://prod.example/omnirelay/b", *HOST), "is not spiffe://prod.example/omnirelay/a"),
        (("spiffe://prod.example/omnirelay/a/b", *HOST), "is not spiffe"),
        (("spiffe://prod.example/omnirelay/A", *HOST), "is not spiffe"),
        (("spiffe://prod.example.evil/omnirelay/a", *HOST), "is not spiffe"),
        ((NODE, "spiffe://prod.example/other", *HOST), "more than one SPIFFE id"),
        ((NODE, "SPIFFE://prod.example/other", *HOST), "more than one SPIFFE id"),
        (HOST, "no SPIFFE id"),
        (("https://prod.example/omnirelay/a", *HOST), "no SPIFFE id"),
    ],
    ids=["another", "below", "case", "domain", "two", "two, in capitals", "none", "no id"],
)
async def test_a_server_that_does_not_show_the_id_gets_no_call(
    site: Site, over: str, names: tuple[str, ...], why: str
) -> None:
    site.renew_server(*names)
    async with node(identity=site.identity()) as opened:
        with pytest.raises(Unavailable, match=why):
            await _stats(opened, over, site.tls(NODE))


@pytest.mark.parametrize("over", NAMING)
def test_the_loop_that_nodes_run_on_checks_ids_as_well(site: Site, over: str) -> None:
    async def tried() -> None:
        site.renew_server(NODE)
        async with node(identity=site.identity()) as opened:
            await _stats(opened, over, site.tls(NODE))
            with pytest.raises(Unavailable, match="the server is not"):
                await _stats(opened, over, site.tls("spiffe://prod.example/other"))

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(tried())


@pytest.mark.parametrize("over", NAMING)
async def test_an_id_signed_by_somebody_else_is_worth_nothing(site: Site, over: str) -> None:
    site.renew_server(NODE)
    site.ca.write_bytes(Authority("Another authority").pem)
    async with node(identity=site.identity()) as opened:
        with pytest.raises(Unavailable, match="certificate verify failed"):
            await _stats(opened, over, site.tls(NODE))


@pytest.mark.parametrize(
    "server_id",
    [
        *("", "*", "spiffe://", "spiffe://*", "spiffe://prod.*", "spiffe://prod.example"),
        *("spiffe://prod.example*", "spiffe://prod.example/", "https://prod.example/a"),
        *("spiffe://prod.example/a*b", "spiffe://prod.example/*/*", "spiffe://prod.example/a b"),
    ],
)
def test_what_cannot_be_the_id_of_a_server_is_refused(server_id: str) -> None:
    with pytest.raises(InvalidOption, match="server_id"):
        Tls(ca_file="ca.pem", server_id=server_id)


@pytest.mark.parametrize("scheme", ["grpcs", "grpc", "http", "stream", "stream+unix"])
def test_a_wire_that_cannot_check_the_id_refuses_it(site: Site, scheme: str) -> None:
    with pytest.raises(InvalidOption, match=re.escape(f"over {scheme}://")):
        omnirelay.connect(f"{scheme}://127.0.0.1:1/x", tls=site.tls(NODE))


def test_an_id_needs_an_authority_of_its_own() -> None:
    with pytest.raises(InvalidOption, match="needs ca_file"):
        Tls(server_id=NODE)
