"""Keys and certificates for gRPC, which keeps its own TLS."""

from collections.abc import Callable

import grpc

from omnirelay.model.errors import InvalidOption
from omnirelay.transports.client_tls import Pem

TlsSource = Callable[[], Pem]
"""Gives what to use now. For a listener the authority is the one that signs its clients; naming it
makes a client certificate required, since gRPC in Python cannot ask for one without insisting."""


class ServerSecrets:
    def __init__(self, source: TlsSource) -> None:
        self._source = source
        self._requires_client = False
        self._fresh: grpc.ServerCertificateConfiguration | None = None

    def credentials(self) -> grpc.ServerCredentials:
        first, self._requires_client = self._load()
        return grpc.dynamic_ssl_server_credentials(
            first,
            self._fetch,  # type: ignore[arg-type]  # None is documented, and not in the stubs
            self._requires_client,
        )

    def reload(self) -> None:
        fresh, requires_client = self._load()
        if requires_client != self._requires_client:
            raise InvalidOption("whether clients need a certificate cannot change while listening")
        self._fresh = fresh

    def _fetch(self) -> grpc.ServerCertificateConfiguration | None:
        # Called in a thread of gRPC's for every new connection; None leaves what is in use. A pair
        # that does not fit is refused there, and the old one goes on.
        fresh, self._fresh = self._fresh, None
        return fresh

    def _load(self) -> tuple[grpc.ServerCertificateConfiguration, bool]:
        key, chain, authority = self._source()
        if key is None or chain is None:
            raise InvalidOption("a listener with TLS needs a key and a certificate chain")
        made = grpc.ssl_server_certificate_configuration([(key, chain)], authority)
        return made, authority is not None


def channel_credentials(pem: Pem) -> grpc.ChannelCredentials:
    key, chain, authority = pem
    if (key is None) != (chain is None):
        raise InvalidOption("a client certificate needs both its chain and its key")
    return grpc.ssl_channel_credentials(authority, key, chain)
