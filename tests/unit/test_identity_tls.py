"""Handshakes between real contexts, in memory."""

import ssl
import warnings
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from omnirelay.identity.certificates import certificate_of
from omnirelay.identity.tls import ServerTls
from omnirelay.model.errors import InvalidOption, Unauthenticated
from omnirelay.model.ports import SystemClock
from omnirelay.testing import figures
from omnirelay.testing.authority import Authority, self_signed
from omnirelay.testing.clock import HandClock
from omnirelay.testing.identity_cases import BAD_CLIENTS
from omnirelay.testing.identity_world import WORKER, IdentityWorld
from omnirelay.transports.client_tls import Tls

ROUNDS = 10


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[IdentityWorld]:
    world = IdentityWorld(tmp_path_factory.mktemp("tls"))
    yield world
    world.close()


def server_tls(world: IdentityWorld, *, required: bool = True) -> ServerTls:
    files = world.tls()
    return ServerTls(
        files.cert_file,
        files.key_file,
        client_ca_file=files.client_ca_file,
        crl_file=files.crl_file,
        require_client_certificate=required,
    )


def shake(
    server_context: ssl.SSLContext,
    client_context: ssl.SSLContext,
    session: ssl.SSLSession | None = None,
) -> tuple[ssl.SSLObject, ssl.SSLObject]:
    """Server's and client's ends after the handshake. Raises SSLError if either refused."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = server_context.wrap_bio(to_server, to_client, server_side=True)
    client = client_context.wrap_bio(to_client, to_server, server_hostname="localhost")
    if session is not None:
        client.session = session
    waiting = [client, server]
    for _ in range(ROUNDS):
        waiting = [end for end in waiting if not is_done(end)]
        if not waiting:
            return server, client
    raise AssertionError("the handshake does not end")


def is_done(end: ssl.SSLObject) -> bool:
    try:
        end.do_handshake()
    except ssl.SSLWantReadError:
        return False
    return True


def shown_to(server: ssl.SSLObject) -> bytes:
    der = server.getpeercert(binary_form=True)
    assert der is not None
    return der


def test_a_good_client_is_read_from_its_handshake(shared: IdentityWorld) -> None:
    tls = server_tls(shared)
    server, _ = shake(tls.context, shared.client_context("worker"))
    certificate = tls.verified(shown_to(server))
    assert certificate.subject == "CN=worker"
    assert certificate.names == (WORKER,)
    assert certificate.thumbprint == shared.clients["worker"].thumbprint


@pytest.mark.parametrize("required", [True, False])
@pytest.mark.parametrize("client", BAD_CLIENTS)
def test_a_bad_certificate_ends_the_handshake(
    client: str, required: bool, shared: IdentityWorld
) -> None:
    tls = server_tls(shared, required=required)
    refused = False
    try:
        shake(tls.context, shared.client_context(client))
    except ssl.SSLError:
        refused = True
    figures.record("identity", cases=1, server_errors=0, wrongly_accepted=int(not refused))
    assert refused


def test_a_client_without_a_certificate_gets_in_only_where_none_is_required(
    shared: IdentityWorld,
) -> None:
    with pytest.raises(ssl.SSLError):
        shake(server_tls(shared).context, shared.client_context(None))
    server, _ = shake(server_tls(shared, required=False).context, shared.client_context(None))
    assert server.getpeercert(binary_form=True) is None


def test_tls_1_1_is_refused_by_the_server(shared: IdentityWorld) -> None:
    context = shared.client_context("worker")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        context.minimum_version = ssl.TLSVersion.TLSv1_1
        context.maximum_version = ssl.TLSVersion.TLSv1_1
    context.set_ciphers("DEFAULT:@SECLEVEL=0")
    with pytest.raises(ssl.SSLError, match="UNSUPPORTED_PROTOCOL"):
        shake(ServerTls(*shared.server_files).context, context)


def test_plain_text_on_the_tls_port_is_refused(shared: IdentityWorld) -> None:
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = server_tls(shared).context.wrap_bio(to_server, to_client, server_side=True)
    to_server.write(b"POST /v1/resourcelease/stats HTTP/1.1\r\nHost: localhost\r\n\r\n")
    with pytest.raises(ssl.SSLError):
        server.do_handshake()


def test_a_client_refuses_a_server_of_another_name_or_authority(
    shared: IdentityWorld, tmp_path: Path
) -> None:
    ca = str(shared.folder / "ca.pem")
    elsewhere = shared.authority.issue("elsewhere", ["elsewhere.example"]).write(tmp_path, "e")
    with pytest.raises(ssl.SSLCertVerificationError):
        shake(ServerTls(*elsewhere).context, Tls(ca_file=ca).context())
    foreign = shared.foreign.issue("node", ["localhost"]).write(tmp_path, "f")
    with pytest.raises(ssl.SSLCertVerificationError):
        shake(ServerTls(*foreign).context, Tls(ca_file=ca).context())


class Site:
    """A folder whose files are replaced under a running server."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authority = Authority()
        self.client = self.authority.issue("worker", [WORKER])
        self.client_files = self.client.write(folder, "client")
        self.ca = folder / "ca.pem"
        self.crl = folder / "crl.pem"
        self.ca.write_bytes(self.authority.pem)
        self.crl.write_bytes(self.authority.revocations())
        (folder / "roots.pem").write_bytes(self.authority.pem)
        self.files = self.authority.issue("first", ["localhost"]).write(folder, "server")
        self.tls = ServerTls(
            *self.files,
            client_ca_file=str(self.ca),
            crl_file=str(self.crl),
            require_client_certificate=True,
        )

    def client_context(self) -> ssl.SSLContext:
        cert, key = self.client_files
        roots = str(self.folder / "roots.pem")
        return Tls(ca_file=roots, cert_file=cert, key_file=key).context()

    def shake(self) -> tuple[ssl.SSLObject, ssl.SSLObject]:
        return shake(self.tls.context, self.client_context())

    def served(self) -> str:
        """The subject of the certificate a client sees now."""
        return certificate_of(shown_to(self.shake()[1])).subject


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def test_new_handshakes_get_the_new_certificate_from_the_same_context(site: Site) -> None:
    before = site.tls.context
    assert not site.tls.reload_if_changed()
    site.authority.issue("second", ["localhost"]).write(site.folder, "server")
    assert site.served() == "CN=first"
    assert site.tls.reload_if_changed()
    assert site.served() == "CN=second"
    assert site.tls.context is before
    assert site.tls.pem().certificate == Path(site.files[0]).read_bytes()


def test_half_a_new_pair_changes_nothing_until_the_other_half_is_there(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    new = site.authority.issue("second", ["localhost"])
    Path(site.files[0]).write_bytes(new.cert_pem)
    assert not site.tls.reload_if_changed()
    assert not site.tls.reload_if_changed()
    assert len(caplog.records) == 1, "the same trouble is not reported every second"
    assert site.served() == "CN=first"
    Path(site.files[1]).write_bytes(new.key_pem)
    assert site.tls.reload_if_changed()
    assert site.served() == "CN=second"


def test_files_that_vanish_change_nothing(site: Site) -> None:
    Path(site.files[0]).unlink()
    assert not site.tls.reload_if_changed()
    assert site.served() == "CN=first"


def test_an_authority_that_was_taken_out_is_out(site: Site) -> None:
    site.shake()
    site.ca.write_bytes(Authority("Another authority").pem)
    site.crl.write_bytes(Authority("Another authority").revocations())
    assert site.tls.reload_if_changed()
    with pytest.raises(ssl.SSLError):
        site.shake()


def test_a_client_is_refused_once_it_stands_on_the_list(site: Site) -> None:
    server, _ = site.shake()
    shown = shown_to(server)
    site.tls.verified(shown)
    site.crl.write_bytes(site.authority.revocations([site.client]))
    assert site.tls.reload_if_changed()
    with pytest.raises(ssl.SSLError):
        site.shake()
    with pytest.raises(Unauthenticated, match="revoked"):
        site.tls.verified(shown)


def test_a_list_past_its_next_update_refuses_everybody(site: Site) -> None:
    shown = shown_to(site.shake()[0])
    site.crl.write_bytes(site.authority.revocations(next_update=-timedelta(hours=1)))
    assert site.tls.reload_if_changed()
    with pytest.raises(ssl.SSLError):
        site.shake()
    with pytest.raises(Unauthenticated, match="in force"):
        site.tls.verified(shown)


def test_a_list_of_another_authority_lets_nobody_in(site: Site) -> None:
    shown = shown_to(site.shake()[0])
    site.crl.write_bytes(Authority("Another authority").revocations())
    assert site.tls.reload_if_changed()
    with pytest.raises(Unauthenticated, match="in force"):
        site.tls.verified(shown)


def test_a_list_that_ends_is_news_once_although_no_file_has_changed(site: Site) -> None:
    clock = HandClock(SystemClock().wall_ms())
    ca, crl = str(site.ca), str(site.crl)
    tls = ServerTls(*site.files, client_ca_file=ca, crl_file=crl, clock=clock)
    tls.verified(site.client.der)
    assert not tls.reload_if_changed()
    clock.advance(25 * 3600 * 1000)
    with pytest.raises(Unauthenticated, match="in force"):
        tls.verified(site.client.der)
    assert tls.reload_if_changed(), "so that whoever has read it before reads it again"
    assert not tls.reload_if_changed()


def test_a_revoked_client_cannot_resume_its_session(site: Site) -> None:
    context = site.client_context()
    _, client = shake(site.tls.context, context)
    with pytest.raises(ssl.SSLWantReadError):
        client.read(1)  # takes in what a server sends after the handshake, tickets among it
    session = client.session
    site.crl.write_bytes(site.authority.revocations([site.client]))
    assert site.tls.reload_if_changed()
    with pytest.raises(ssl.SSLError, match="revoked"):
        shake(site.tls.context, context, session)


def test_tls_1_2_which_resumes_unverified_is_only_for_servers_without_client_certificates(
    site: Site,
) -> None:
    context = site.client_context()
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    with pytest.raises(ssl.SSLError, match="UNSUPPORTED_PROTOCOL"):
        shake(site.tls.context, context)
    _, client = shake(ServerTls(*site.files).context, context)
    assert client.version() == "TLSv1.2"


@pytest.mark.parametrize("encoded", [b"", b"\x30\x03\x02\x01\x01", b"-----BEGIN CERTIFICATE-----"])
def test_bytes_that_are_no_certificate_prove_nobody(encoded: bytes) -> None:
    with pytest.raises(Unauthenticated):
        certificate_of(encoded)


def test_der_and_pem_say_the_same(site: Site) -> None:
    assert certificate_of(site.client.der) == certificate_of(site.client.cert_pem)


def test_files_that_cannot_serve_are_refused_at_the_start(site: Site, tmp_path: Path) -> None:
    cert, key = site.files
    other = str(tmp_path / "other.key")
    Path(other).write_bytes(self_signed("x", ["x.example"]).key_pem)
    empty = str(tmp_path / "empty")
    Path(empty).write_bytes(b"")
    for files in ((cert, other), (cert, empty), (empty, key), (cert, "missing.key")):
        with pytest.raises(InvalidOption):
            ServerTls(*files)
    with pytest.raises(InvalidOption, match="client_ca_file"):
        ServerTls(cert, key, require_client_certificate=True)
    with pytest.raises(InvalidOption):
        ServerTls(cert, key, client_ca_file=empty)
    with pytest.raises(InvalidOption):
        ServerTls(cert, key, client_ca_file=str(site.ca), crl_file=empty)
    with pytest.raises(InvalidOption, match="both"):
        Tls(cert_file=cert)


def test_a_client_takes_up_new_files_for_its_next_connection(site: Site) -> None:
    tls = Tls(ca_file=str(site.ca))
    shake(ServerTls(*site.files).context, tls.context())
    site.ca.write_bytes(Authority("Another authority").pem)
    with pytest.raises(ssl.SSLCertVerificationError):
        shake(ServerTls(*site.files).context, tls.context())
    site.ca.write_bytes(b"nonsense")
    with pytest.raises(InvalidOption):
        tls.context()


def test_a_private_key_is_not_in_the_repr_of_what_holds_it(site: Site) -> None:
    assert b"PRIVATE KEY" in (site.tls.pem().key or b"")
    assert "PRIVATE" not in repr(site.tls.pem()) + repr(site.tls) + repr(vars(site.tls))
