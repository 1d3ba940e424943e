"""One set of keys, certificates and settings that the identity cases are played in, on any wire."""

import base64
import ssl
from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import Any

import msgspec

from omnirelay.identity.certificates import CertificateSettings
from omnirelay.identity.issuer import IssuerSettings
from omnirelay.identity.policy import GrantSettings, Role
from omnirelay.identity.settings import IdentitySettings
from omnirelay.identity.tls import TlsSettings
from omnirelay.model.items import ANONYMOUS
from omnirelay.rpc.meta import RequestMeta
from omnirelay.rpc.procedure import Registry
from omnirelay.testing.authority import Authority, Issued, self_signed
from omnirelay.testing.issuers import AUDIENCE, KeyServer, Signer

NAMESPACE = "resourcelease"
WHO = f"{NAMESPACE}::stats"
"""A procedure that says who its caller was proved to be; every principal below may ask."""
WORKER = "spiffe://prod.example/worker/7"
PROXY = "spiffe://prod.example/proxy/1"
_HOUR = timedelta(hours=1)


class Ask(msgspec.Struct, frozen=True):
    pass


class Who(msgspec.Struct, frozen=True, rename="camel"):
    principal: str
    proof: str | None
    peer_id: str | None
    headers: dict[str, str]


async def who(meta: RequestMeta, ask: Ask) -> Who:
    return Who(meta.principal, meta.proof, meta.peer_id, dict(meta.headers))


def who_registry() -> Registry:
    registry = Registry()
    registry.unary(WHO, who, Ask, Who)
    return registry


class IdentityWorld:
    """Needs a folder; `close` it. A node is started with `settings()`, or `settings(proxied=True)`
    where loopback is a trusted proxy, over TLS from the same settings where a wire has it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._ids = count(1)
        self.main = Signer("https://issuer.example")
        self.once = Signer("https://once.example")
        self.bound = Signer("https://bound.example")
        self.stranger = Signer("https://stranger.example")
        self.broken = {
            path: Signer(f"https://{path}.example")
            for path in ("html", "text", "moved", "packed", "long", "many", "none", "gone")
        }
        self.unreachable = Signer("https://unreachable.example")
        self.key_server = KeyServer(self.main.key_set())
        self.authority = Authority()
        self.foreign = Authority("Another authority")
        self.clients = self._clients()
        (folder / "ca.pem").write_bytes(self.authority.pem)
        (folder / "crl.pem").write_bytes(self.authority.revocations([self.clients["revoked"]]))
        server = self.authority.issue("node", ["localhost", "127.0.0.1"], usage="server")
        self.server_files = server.write(folder, "server")

    def new_id(self) -> str:
        """For a `jti`: several suites may play their cases against one node."""
        return f"j-{next(self._ids)}"

    def close(self) -> None:
        self.key_server.close()

    def _clients(self) -> dict[str, Issued]:
        issue, names = self.authority.issue, [WORKER]
        return {
            "worker": issue("worker", names),
            "proxy": issue("proxy", [PROXY]),
            "subject": issue("reporter", ["reporter.example"]),
            "two ids": issue("two", [WORKER, PROXY]),
            "other domain": issue("other", ["spiffe://evil.example/worker/7"]),
            "nameless": issue("", []),
            "expired": issue("worker", names, valid=(-2 * _HOUR, -_HOUR)),
            "not yet valid": issue("worker", names, valid=(_HOUR, 2 * _HOUR)),
            "wrong usage": issue("worker", names, usage="server"),
            "revoked": issue("worker", names),
            "foreign": self.foreign.issue("worker", names),
            "self-signed": self_signed("worker", names),
            "self-signed as the authority": self_signed("Test authority", names),
        }

    # -- what a node is given -----------------------------------------------------------------

    def settings(self, *, proxied: bool = False, anonymous: bool = False) -> IdentitySettings:
        from_file = [self.main, self.once, self.bound]
        issuers = [self._issuer(signer, jwks_file=self._key_file(signer)) for signer in from_file]
        issuers[1] = msgspec.structs.replace(issuers[1], single_use=True)
        issuers[2] = msgspec.structs.replace(issuers[2], require_binding=True)
        for path, signer in self.broken.items():
            issuers.append(self._issuer(signer, jwks_url=self.key_server.url(f"/{path}")))
        # Nobody listens on port 1, and nobody may start to without being root.
        nowhere = "http://127.0.0.1:1/keys"
        issuers.append(self._issuer(self.unreachable, jwks_url=nowhere))
        names = ("*", ANONYMOUS) if anonymous else ("*",)
        everyone = GrantSettings(role=Role.OBSERVER, principals=names, namespaces=(NAMESPACE,))
        return IdentitySettings(
            trusted_proxies=("127.0.0.0/8", "::1") if proxied else (),
            proxy_principals=(PROXY,) if proxied else (),
            anonymous=anonymous,
            tls=self.tls(),
            certificates=CertificateSettings(trust_domains=("prod.example",)),
            issuers=tuple(issuers),
            roles=(everyone,),
        )

    def tls(self) -> TlsSettings:
        cert, key = self.server_files
        return TlsSettings(
            cert_file=cert,
            key_file=key,
            client_ca_file=str(self.folder / "ca.pem"),
            crl_file=str(self.folder / "crl.pem"),
        )

    def client_context(self, client: str | None) -> ssl.SSLContext:
        """For a client that shows the certificate of that name, or none."""
        context = ssl.create_default_context(cafile=str(self.folder / "ca.pem"))
        if client is not None:
            shown = self.clients[client].write(self.folder, client.replace(" ", "-"))
            context.load_cert_chain(*shown)
        return context

    def bound_token(self, client: str, signer: Signer | None = None, **changed: Any) -> str:
        digest = bytes.fromhex(self.clients[client].thumbprint)
        encoded = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
        return (signer or self.bound).token(cnf={"x5t#S256": encoded}, **changed)

    def _key_file(self, signer: Signer) -> str:
        path = self.folder / f"{signer.name.removeprefix('https://')}.jwks.json"
        path.write_bytes(signer.key_set())
        return str(path)

    @staticmethod
    def _issuer(
        signer: Signer, *, jwks_file: str | None = None, jwks_url: str | None = None
    ) -> IssuerSettings:
        return IssuerSettings(
            issuer=signer.name,
            audience=AUDIENCE,
            algorithms=("RS256", "ES256"),
            jwks_file=jwks_file,
            jwks_url=jwks_url,
        )
