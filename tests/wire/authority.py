"""TLS for the tests of a wire: contexts of a node and its callers, signed by one authority."""

import hashlib
import ssl

import trustme

from omnirelay.rpc.meta import Certificate


class Authority:
    def __init__(self) -> None:
        self._ca = trustme.CA()

    def node(self, *, asks: bool = False) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._ca.issue_cert("127.0.0.1").configure_cert(context)
        if asks:
            self._ca.configure_trust(context)
            context.verify_mode = ssl.CERT_REQUIRED
        return context

    def caller(self, name: str | None = None) -> ssl.SSLContext:
        context = ssl.create_default_context()
        self._ca.configure_trust(context)
        if name is not None:
            self._ca.issue_cert(name).configure_cert(context)
        return context


def read(der: bytes) -> Certificate:
    return Certificate("read", (), hashlib.sha256(der).hexdigest())
