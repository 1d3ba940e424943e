"""TLS contexts that take up new certificates, authorities and revocations without a gap."""

import hashlib
import logging
import ssl
from collections.abc import Sequence

import msgspec

from omnirelay.identity.certificates import described, parsed
from omnirelay.identity.revocations import Revocations
from omnirelay.model.errors import InvalidOption
from omnirelay.model.ports import Clock, SystemClock
from omnirelay.rpc.meta import Certificate

log = logging.getLogger(__name__)

_Signature = tuple[bytes, ...]


class Pem:
    """What a library that keeps its own TLS wants. No repr: one of these is a private key."""

    __slots__ = ("ca", "certificate", "key")

    def __init__(self, certificate: bytes | None, key: bytes | None, ca: bytes | None) -> None:
        self.certificate = certificate
        self.key = key
        self.ca = ca


class TlsSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """`[identity.tls]`: the node's own certificate, and whose clients it believes."""

    cert_file: str
    key_file: str
    client_ca_file: str | None = None
    require_client_certificate: bool = False
    """Refuse a handshake without one. Otherwise one that is shown is verified, and a caller
    without one needs another proof."""
    crl_file: str | None = None
    """Revocation lists in PEM, one for each authority that signs clients. A list that is missing
    or past its next update refuses every client: an old list may hide a theft."""


class ServerTls:
    """`context` stays the same object for the life of a listener. After a reload it hands each new
    handshake over to a context built from the new files, so an authority that was taken out is
    out, and a half-written pair of files never serves anybody."""

    def __init__(
        self,
        cert_file: str,
        key_file: str,
        *,
        client_ca_file: str | None = None,
        require_client_certificate: bool = False,
        crl_file: str | None = None,
        alpn: Sequence[str] = (),
        clock: Clock | None = None,
    ) -> None:
        """`clock` says which revocation lists are in force; TLS itself goes by the system's, and so
        does this one if it is given none. Raises InvalidOption if the files do not fit together."""
        if client_ca_file is None and (require_client_certificate or crl_file):
            raise InvalidOption(
                "identity.tls: require_client_certificate and crl_file need client_ca_file"
            )
        self.require_client_certificate = require_client_certificate
        self._cert, self._key, self._ca, self._crl = cert_file, key_file, client_ca_file, crl_file
        self._alpn = list(alpn)
        self._clock: Clock = clock or SystemClock()
        paths = (cert_file, key_file, client_ca_file, crl_file)
        self._paths = [path for path in paths if path is not None]
        self._signature = _signature(self._paths)
        self._unfit: _Signature | None = None
        self.context, self._pem, self._revoked = self._load()
        self._covered = self._covered_now()
        self._current = self.context
        self.context.sni_callback = self._hand_over

    def pem(self) -> Pem:
        return self._pem

    def reload_if_changed(self) -> bool:
        """True if new handshakes get something new: other files, or no mercy since a revocation
        list has ended. Files that do not fit are reported once and leave everything as it was; they
        are looked at again when they have changed again."""
        is_new = self._take_up_files()
        before, self._covered = self._covered, self._covered_now()
        if lapsed := len(before - self._covered):
            log.warning("%d revocation lists have ended: their clients are refused", lapsed)
        return is_new or before != self._covered

    def _take_up_files(self) -> bool:
        signature = None
        try:
            signature = _signature(self._paths)
            if signature in (self._signature, self._unfit):
                return False
            context, pem, revoked = self._load()
            if _signature(self._paths) != signature:
                return False  # still being written: the next look takes them whole
        except InvalidOption as error:
            log.warning("certificates stay as they were: %s", error)
            self._unfit = signature
            return False
        self._current, self._pem, self._revoked = context, pem, revoked
        self._signature = signature
        log.info("certificates reloaded from %s", self._cert)
        return True

    def verified(self, encoded: bytes) -> Certificate:
        """A peer's certificate after its handshake. Looks at the revocation lists once more, since
        a library with its own TLS did not. Raises Unauthenticated."""
        certificate = parsed(encoded)
        if self._revoked is not None:
            self._revoked.check(certificate, self._clock.wall_ms())
        return described(certificate)

    def _covered_now(self) -> frozenset[bytes]:
        if self._revoked is None:
            return frozenset()
        return self._revoked.covered(self._clock.wall_ms())

    def _hand_over(
        self, connection: ssl.SSLObject | ssl.SSLSocket, name: str | None, context: ssl.SSLContext
    ) -> None:
        # Called in the middle of every handshake, with or without a server name.
        if self._current is not self.context:
            connection.context = self._current

    def _load(self) -> tuple[ssl.SSLContext, Pem, Revocations | None]:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        if self._alpn:
            context.set_alpn_protocols(self._alpn)
        _load_pair(context, self._cert, self._key)
        if self._ca is not None:
            required = self.require_client_certificate
            context.verify_mode = ssl.CERT_REQUIRED if required else ssl.CERT_OPTIONAL
            # A resumed session is not verified again, so a revoked client would stay in. TLS 1.3
            # does not resume without tickets; TLS 1.2 cannot be kept from it.
            context.minimum_version = ssl.TLSVersion.TLSv1_3
            context.num_tickets = 0
            _load_authority(context, self._ca)
        if self._crl is not None:
            context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF
            _load_authority(context, self._crl)
        ca = _read(self._ca) if self._ca is not None else None
        pem = Pem(_read(self._cert), _read(self._key), ca)
        revoked = None if self._crl is None else Revocations(_read(self._crl), self._crl)
        return context, pem, revoked


def _signature(paths: Sequence[str]) -> _Signature:
    # By content: a file's time may not move between two writes that follow each other closely.
    return tuple(hashlib.sha256(_read(path)).digest() for path in paths)


def _load_pair(context: ssl.SSLContext, cert_file: str, key_file: str) -> None:
    try:
        # A locked key would otherwise ask for its password on the terminal, and wait.
        context.load_cert_chain(cert_file, key_file, password="")
    except (ssl.SSLError, OSError, ValueError) as error:
        raise InvalidOption(
            f"{cert_file} and {key_file} are not a certificate and its unlocked key: {error}"
        ) from None


def _load_authority(context: ssl.SSLContext, path: str) -> None:
    try:
        context.load_verify_locations(cafile=path)
    except (ssl.SSLError, OSError) as error:
        raise InvalidOption(f"{path} holds no certificates or lists in PEM: {error}") from None


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise InvalidOption(f"{path}: {error.strerror}") from None
