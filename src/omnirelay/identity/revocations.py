"""Revocation lists, held against certificates that a library with its own TLS let through."""

from datetime import datetime

from cryptography import x509

from omnirelay.model.errors import InvalidOption, Unauthenticated

_END = b"-----END X509 CRL-----"


class Revocations:
    """Judges as TLS does: a certificate needs a list of its issuer that is in force, and must not
    stand on one."""

    def __init__(self, encoded: bytes, path: str) -> None:
        """`encoded` is PEM, one list after another. Raises InvalidOption, naming `path`."""
        self._serials: set[tuple[bytes, int]] = set()
        self._in_force: dict[bytes, list[tuple[int, int | None]]] = {}
        for block in encoded.split(_END)[:-1]:
            try:
                self._add(x509.load_pem_x509_crl(block + _END))
            except ValueError as error:
                raise InvalidOption(f"{path}: {error}") from None

    def check(self, certificate: x509.Certificate, now_ms: int) -> None:
        """Raises Unauthenticated."""
        issuer = certificate.issuer.public_bytes()
        if (issuer, certificate.serial_number) in self._serials:
            raise Unauthenticated("the certificate is revoked")
        if not self._covers(issuer, now_ms):
            raise Unauthenticated(
                "no revocation list of the certificate's authority is in force: crl_file needs a "
                "new one"
            )

    def covered(self, now_ms: int) -> frozenset[bytes]:
        """Authorities that have a list in force."""
        return frozenset(issuer for issuer in self._in_force if self._covers(issuer, now_ms))

    def _covers(self, issuer: bytes, now_ms: int) -> bool:
        return any(
            since <= now_ms and (until is None or now_ms <= until)
            for since, until in self._in_force.get(issuer, ())
        )

    def _add(self, crl: x509.CertificateRevocationList) -> None:
        issuer = crl.issuer.public_bytes()
        until = crl.next_update_utc
        span = _ms(crl.last_update_utc), None if until is None else _ms(until)
        self._in_force.setdefault(issuer, []).append(span)
        self._serials |= {(issuer, entry.serial_number) for entry in crl}


def _ms(moment: datetime) -> int:
    return round(moment.timestamp() * 1000)
