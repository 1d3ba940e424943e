"""TLS of a caller: its files, taken up anew when they change, and whom it takes a server for."""

import logging
import ssl
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from omnirelay.model.errors import InvalidOption
from omnirelay.model.ports import Clock
from omnirelay.transports.server_id import ServerId

log = logging.getLogger(__name__)

LOOK_MS: Final = 1_000
"""Files are looked at again no sooner: callers ask with every call or connection."""

ContextSource = Callable[[], ssl.SSLContext]
"""Gives what a new connection is to use."""
Pem = tuple[bytes | None, bytes | None, bytes | None]
"""Key, certificate chain, authority."""


class Tls(msgspec.Struct, frozen=True, kw_only=True):
    """Files of a client: whom it trusts, and what proves it to the node."""

    ca_file: str | None = None
    """None: the authorities of the system."""
    cert_file: str | None = None
    key_file: str | None = None
    server_id: str | None = None
    """The SPIFFE id that the server's certificate must carry, exact or with a `*` at the end, such
    as `spiffe://prod.example/omnirelay/*`. The host's name is then not looked at."""

    def __post_init__(self) -> None:
        if (self.cert_file is None) != (self.key_file is None):
            raise InvalidOption("a client certificate needs both its file and its key's file")
        if self.server_id is not None:
            ServerId(self.server_id)
            if self.ca_file is None:
                raise InvalidOption(
                    "server_id needs ca_file: the authorities of the system vouch for host names"
                )

    def context(self) -> ssl.SSLContext:
        try:
            context = ssl.create_default_context(cafile=self.ca_file)
            if self.cert_file is not None:
                # A locked key would otherwise ask for its password on the terminal, and wait.
                context.load_cert_chain(self.cert_file, self.key_file, password="")
        except (OSError, ssl.SSLError, ValueError) as error:
            raise InvalidOption(f"the TLS files cannot be used: {error}") from error
        if self.server_id is not None:
            ServerId(self.server_id).demand_of(context)
        return context

    def pem(self) -> Pem:
        """As gRPC wants them."""
        try:
            return (_read(self.key_file), _read(self.cert_file), _read(self.ca_file))
        except OSError as error:
            raise InvalidOption(f"the TLS files cannot be used: {error}") from error


def _read(path: str | None) -> bytes | None:
    return None if path is None else Path(path).read_bytes()


class TlsFiles:
    """What the files of `tls` held when they last fitted together. May be used from any thread: the
    connections of one relay live on several."""

    def __init__(self, tls: Tls, clock: Clock) -> None:
        """Raises InvalidOption if the files cannot be used now."""
        self._tls = tls
        self._clock = clock
        self._lock = threading.Lock()
        self._pem = tls.pem()
        self._context = tls.context()
        self._looked_ms = clock.monotonic_ms()
        self._complaint = ""

    def context(self) -> ssl.SSLContext:
        with self._lock:
            self._look()
            return self._context

    def pem(self) -> Pem:
        with self._lock:
            self._look()
            return self._pem

    def _look(self) -> None:
        now = self._clock.monotonic_ms()
        if now - self._looked_ms < LOOK_MS:
            return
        self._looked_ms = now
        try:
            pem = self._tls.pem()
            if pem == self._pem:
                return
            context = self._tls.context()
            if self._tls.pem() != pem:
                return  # still being written: the next look takes them whole
        except InvalidOption as error:
            if error.message != self._complaint:
                log.warning("the last TLS files that fitted stay in use: %s", error.message)
                self._complaint = error.message
            return
        self._pem, self._context, self._complaint = pem, context, ""
        log.info("TLS files taken up anew, for new connections")
