"""Certificates: what they say, and whom they prove."""

from functools import lru_cache

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives.hashes import SHA256

from omnirelay.identity.naming import patterns, principal_named
from omnirelay.model.errors import InvalidOption, Unauthenticated
from omnirelay.rpc.meta import Certificate

_SPIFFE = "spiffe://"
_PEM = b"-----BEGIN"


def parsed(encoded: bytes) -> x509.Certificate:
    """From DER or PEM. Raises Unauthenticated for anything else."""
    try:
        if encoded.lstrip().startswith(_PEM):
            return x509.load_pem_x509_certificate(encoded)
        return x509.load_der_x509_certificate(encoded)
    except ValueError:
        raise Unauthenticated("the certificate cannot be read") from None


def certificate_of(encoded: bytes) -> Certificate:
    """What a verified certificate says. Verifying it is the business of the TLS context."""
    return described(parsed(encoded))


def described(certificate: x509.Certificate) -> Certificate:
    try:
        return Certificate(
            subject=certificate.subject.rfc4514_string(),
            names=_names(certificate),
            thumbprint=certificate.fingerprint(SHA256()).hex(),
        )
    except (ValueError, x509.DuplicateExtension, x509.UnsupportedGeneralNameType):
        raise Unauthenticated("the certificate's names cannot be read") from None


def _names(certificate: x509.Certificate) -> tuple[str, ...]:
    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except x509.ExtensionNotFound:
        return ()
    named = (x509.DNSName, x509.UniformResourceIdentifier)
    return tuple(name.value for name in found.value if isinstance(name, named))


class CertificateSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """`[identity.certificates]`: which of a certificate's names is the principal."""

    trust_domains: tuple[str, ...] = ()
    """SPIFFE trust domains that are believed; none listed means any that the CA has signed."""
    names: tuple[str, ...] = ()
    """DNS or URI names that may be principals, exact or with a `*` at the end."""
    subject: bool = True
    """Whether the subject is the principal when no name is."""


class CertificateNames:
    def __init__(self, settings: CertificateSettings) -> None:
        for domain in settings.trust_domains:
            if not domain or "/" in domain or "*" in domain:
                raise InvalidOption(
                    f"identity.certificates.trust_domains: {domain!r} must be a bare domain such "
                    f"as 'prod.example'"
                )
        self._domains = frozenset(domain.lower() for domain in settings.trust_domains)
        self._names = patterns(settings.names, "identity.certificates.names")
        self._subject = settings.subject
        # A connection shows the same certificate with every call.
        self.principal_of = lru_cache(maxsize=1024)(self._principal_of)

    def _principal_of(self, certificate: Certificate) -> str:
        """The SPIFFE id, else the listed name, else the subject. Raises Unauthenticated if there
        is none, or if the certificate leaves a choice."""
        spiffe = [name for name in certificate.names if name.lower().startswith(_SPIFFE)]
        if spiffe:
            return self._spiffe(_only(spiffe))
        listed = [name for name in certificate.names if any(p.matches(name) for p in self._names)]
        if listed:
            return principal_named(_only(listed), "the certificate")
        if not self._subject:
            raise Unauthenticated("the certificate carries no name that is a principal here")
        return principal_named(certificate.subject, "the certificate")

    def _spiffe(self, name: str) -> str:
        domain = name[len(_SPIFFE) :].partition("/")[0]
        if self._domains and domain.lower() not in self._domains:
            raise Unauthenticated("the certificate's trust domain is not one of those believed")
        return principal_named(name, "the certificate")


def _only(names: list[str]) -> str:
    if len(set(names)) > 1:
        raise Unauthenticated("the certificate names more than one principal")
    return names[0]
