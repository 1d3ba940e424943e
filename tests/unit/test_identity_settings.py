"""The section `[identity]`: what is taken, and what is refused by name before a node starts."""

import tomllib
from pathlib import Path
from typing import Any

import pytest

from omnirelay.identity.certificates import CertificateNames, CertificateSettings
from omnirelay.identity.settings import build_identity, read_settings
from omnirelay.model.errors import InvalidOption, Unauthenticated
from omnirelay.model.ports import SystemClock
from omnirelay.rpc.meta import Certificate
from omnirelay.testing.authority import Authority
from omnirelay.testing.issuers import Signer

ROLE = {"role": "worker", "principals": ["*"], "namespaces": ["*"]}


def build(section: dict[str, Any]) -> None:
    build_identity(read_settings(section), SystemClock())


def test_the_section_of_the_handbook_is_one_that_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (Path(__file__).parents[2] / "docs" / "security.md").read_text()
    section = page.partition("```toml\n")[2].partition("```")[0]
    (tmp_path / "tls").mkdir()
    authority = Authority()
    (tmp_path / "tls" / "clients.pem").write_bytes(authority.pem)
    (tmp_path / "tls" / "revoked.pem").write_bytes(authority.revocations())
    authority.issue("node", ["localhost"]).write(tmp_path / "tls", "node")
    (tmp_path / "jwks.json").write_bytes(Signer("any").key_set())
    monkeypatch.chdir(tmp_path)
    settings = read_settings(tomllib.loads(section)["identity"])
    identity = build_identity(settings, SystemClock())
    assert identity.is_on
    assert identity.tls is not None
    assert identity.policy.allows("spiffe://prod.example/ingest/7", "resourcelease", "enqueue")


def test_nothing_configured_is_identity_off() -> None:
    settings = read_settings({})
    assert not settings.is_on
    assert not settings.can_prove


@pytest.mark.parametrize(
    ("section", "names"),
    [
        ({"trusted_proxys": []}, "trusted_proxys"),
        ({"trusted_proxies": "10.0.0.0/8"}, "trusted_proxies"),
        ({"trusted_proxies": ["10.0.0.1/8"]}, "host bits"),
        ({"trusted_proxies": ["everybody"]}, "everybody"),
        ({"trusted_proxies": ["0.0.0.0/0"]}, "anybody could be anyone"),
        ({"trusted_proxies": ["::/0"]}, "anybody could be anyone"),
        ({"proxy_principals": ["CN=proxy"]}, "needs trusted_proxies"),
        ({"proxy_principals": ["*x"], "trusted_proxies": ["::1"]}, "proxy_principals"),
        ({"anonymous": "yes"}, "anonymous"),
        ({"headers": {"principal": "X-User"}}, "X-User"),
        ({"headers": {"principal": "x_user"}}, "x_user"),
        ({"headers": {"principal": "x-mtls-subject"}}, "same name"),
        ({"headers": {"principal": "authorization"}}, "authorization"),
        ({"headers": {"subject": "x-peer-id"}}, "x-peer-id"),
        ({"headers": {"user": "x-user"}}, "user"),
        ({"certificates": {"trust_domains": ["spiffe://prod"]}}, "trust_domains"),
        ({"certificates": {"names": ["*.example"]}}, "names"),
        ({"tls": {"cert_file": "a"}}, "key_file"),
        ({"tls": {"cert_file": "a", "key_file": "b"}}, "a: "),
        ({"issuers": [{"issuer": "a"}]}, "audience"),
        ({"issuers": [{"issuer": "a", "audience": "b", "jwks_file": "none"}]}, "jwks_file"),
        ({"issuers": [{"issuer": "a", "audience": "b", "jwks_url": "http://x"}]}, "jwks_url"),
        ({"roles": [ROLE]}, "nobody can be proved"),
    ],
)
def test_what_cannot_work_is_refused_by_name(section: dict[str, Any], names: str) -> None:
    with pytest.raises(InvalidOption, match=names):
        build(section)


def test_an_issuer_is_listed_once() -> None:
    issuer = {"issuer": "a", "audience": "b", "jwks_url": "https://issuer.example/keys"}
    with pytest.raises(InvalidOption, match="listed twice"):
        build({"issuers": [issuer, issuer]})


def test_roles_for_anonymous_alone_turn_identity_on() -> None:
    anonymous = {**ROLE, "principals": ["anonymous"], "namespaces": ["demo"]}
    identity = build_identity(
        read_settings({"anonymous": True, "roles": [anonymous]}), SystemClock()
    )
    assert identity.is_on
    assert identity.policy.allows("anonymous", "demo", "lease")
    assert not identity.policy.allows("anonymous", "users", "lease")


# -- which of a certificate's names is the principal ---------------------------------------------


def named(settings: CertificateSettings, *names: str, subject: str = "CN=x") -> str:
    return CertificateNames(settings).principal_of(Certificate(subject, names, "00"))


def test_the_spiffe_id_comes_first_then_a_listed_name_then_the_subject() -> None:
    settings = CertificateSettings(names=("ingest.example", "urn:*"))
    assert named(settings, "ingest.example", "spiffe://prod/a") == "spiffe://prod/a"
    assert named(settings, "other.example", "ingest.example") == "ingest.example"
    assert named(settings, "urn:node:7") == "urn:node:7"
    assert named(settings, "other.example") == "CN=x"


@pytest.mark.parametrize(
    ("settings", "names"),
    [
        (CertificateSettings(), ("spiffe://prod/a", "spiffe://prod/b")),
        (CertificateSettings(names=("a", "b")), ("a", "b")),
        (CertificateSettings(trust_domains=("prod",)), ("spiffe://prod.evil/a",)),
        (CertificateSettings(trust_domains=("prod",)), ("SPIFFE://evil/a",)),
        (CertificateSettings(subject=False), ("a",)),
        (CertificateSettings(), ("spiffe://prod/\n",)),
    ],
)
def test_a_certificate_that_names_none_or_leaves_a_choice_proves_nobody(
    settings: CertificateSettings, names: tuple[str, ...]
) -> None:
    with pytest.raises(Unauthenticated):
        named(settings, *names)
