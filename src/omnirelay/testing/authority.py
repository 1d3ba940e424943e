"""A certificate authority for tests: real certificates, good and bad, in a few milliseconds."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_DAY = timedelta(days=1)
_USAGES = {
    "client": [ExtendedKeyUsageOID.CLIENT_AUTH],
    "server": [ExtendedKeyUsageOID.SERVER_AUTH],
    "both": [ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH],
}


class Issued(msgspec.Struct, frozen=True):
    certificate: x509.Certificate
    cert_pem: bytes
    key_pem: bytes

    @property
    def der(self) -> bytes:
        return self.certificate.public_bytes(Encoding.DER)

    @property
    def thumbprint(self) -> str:
        return self.certificate.fingerprint(SHA256()).hex()

    def write(self, folder: Path, name: str) -> tuple[str, str]:
        """Paths of the certificate and of its key."""
        cert, key = folder / f"{name}.crt", folder / f"{name}.key"
        cert.write_bytes(self.cert_pem)
        key.write_bytes(self.key_pem)
        return str(cert), str(key)


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)] if common else [])


def _issued(certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> Issued:
    return Issued(
        certificate,
        certificate.public_bytes(Encoding.PEM),
        key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
    )


def _general(name: str) -> x509.GeneralName:
    if "://" in name:
        return x509.UniformResourceIdentifier(name)
    try:
        return x509.IPAddress(ip_address(name))
    except ValueError:
        return x509.DNSName(name)


class Authority:
    def __init__(self, common: str = "Test authority") -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name(common)
        certificate = (
            self._builder(common, self._key, (-_DAY, 30 * _DAY))
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(self._key.public_key()), False)
            .sign(self._key, SHA256())
        )
        self.pem = certificate.public_bytes(Encoding.PEM)

    def issue(
        self,
        common: str,
        names: Iterable[str] = (),
        *,
        usage: str = "both",
        valid: tuple[timedelta, timedelta] = (-_DAY, _DAY),
    ) -> Issued:
        """`valid` counts from now: from when, until when."""
        key = ec.generate_private_key(ec.SECP256R1())
        builder = self._builder(common, key, valid).add_extension(
            x509.ExtendedKeyUsage(_USAGES[usage]), critical=False
        )
        if listed := [_general(name) for name in names]:
            builder = builder.add_extension(x509.SubjectAlternativeName(listed), critical=False)
        return _issued(builder.sign(self._key, SHA256()), key)

    def revocations(
        self, revoked: Iterable[Issued] = (), *, next_update: timedelta = _DAY
    ) -> bytes:
        now = datetime.now(UTC)
        # A list that has ended must have begun before.
        since = now - _DAY + min(next_update, timedelta())
        builder = (
            x509.CertificateRevocationListBuilder()
            .issuer_name(self._name)
            .last_update(since)
            .next_update(now + next_update)
        )
        for one in revoked:
            entry = (
                x509.RevokedCertificateBuilder()
                .serial_number(one.certificate.serial_number)
                .revocation_date(since)
                .build()
            )
            builder = builder.add_revoked_certificate(entry)
        return builder.sign(self._key, SHA256()).public_bytes(Encoding.PEM)

    def _builder(
        self, common: str, key: ec.EllipticCurvePrivateKey, valid: tuple[timedelta, timedelta]
    ) -> x509.CertificateBuilder:
        now = datetime.now(UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(_name(common))
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now + valid[0])
            .not_valid_after(now + valid[1])
        )


def self_signed(common: str, names: Iterable[str] = ()) -> Issued:
    """Signed by nobody but itself, under the authority's name if that is `common`."""
    key = ec.generate_private_key(ec.SECP256R1())
    now = datetime.now(UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(_name(common))
        .issuer_name(_name(common))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _DAY)
        .not_valid_after(now + _DAY)
        .add_extension(x509.SubjectAlternativeName([_general(name) for name in names]), False)
    )
    return _issued(builder.sign(key, SHA256()), key)
