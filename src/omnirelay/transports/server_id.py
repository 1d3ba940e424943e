"""Servers by their SPIFFE id instead of by the name of their host."""

import re
import ssl
from typing import Any

from omnirelay.identity.naming import Pattern
from omnirelay.model.errors import InvalidOption

_SPIFFE = "spiffe://"
_WRITTEN = re.compile(r"spiffe://[^/*\s]+/[^\s]+")


class ServerId:
    def __init__(self, written: str) -> None:
        """Raises InvalidOption. The trust domain stands there whole: a `*` in it would let another
        domain in that begins alike."""
        if not isinstance(written, str) or not _WRITTEN.fullmatch(written):
            raise InvalidOption(
                f"server_id is {written!r:.200}, must be spiffe://domain/path, where a single `*` "
                f"may end the path"
            )
        self._written = written
        self._pattern = Pattern(written, "server_id")

    def demand_of(self, context: ssl.SSLContext) -> None:
        """Handshakes with `context` fail unless the server shows this id. Its chain is verified as
        ever, and nothing is sent before."""
        check = self.check

        class Checked(ssl.SSLObject):
            def do_handshake(self) -> None:
                super().do_handshake()
                check(self.getpeercert())

        context.check_hostname = False
        context.sslobject_class = Checked

    def check(self, certificate: Any) -> None:
        """Any: what `getpeercert` tells of a certificate that was verified. Raises
        SSLCertVerificationError, and never repeats what the certificate says of itself."""
        names = (certificate or {}).get("subjectAltName", ())
        ids = {name for kind, name in names if kind == "URI" and name.lower().startswith(_SPIFFE)}
        if len(ids) > 1:
            raise _refusal("the server's certificate carries more than one SPIFFE id")
        if not ids:
            raise _refusal("the server's certificate carries no SPIFFE id")
        if not self._pattern.matches(ids.pop()):
            raise _refusal(f"the server is not {self._written}")


def _refusal(why: str) -> ssl.SSLCertVerificationError:
    return ssl.SSLCertVerificationError(ssl.SSL_ERROR_SSL, why)
