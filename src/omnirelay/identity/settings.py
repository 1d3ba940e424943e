"""The section `[identity]` of omnirelay.toml, and what is built from it."""

from collections.abc import Mapping
from typing import Any

import msgspec

from omnirelay.identity.binding import SECRET, Binding
from omnirelay.identity.certificates import (
    CertificateNames,
    CertificateSettings,
    certificate_of,
)
from omnirelay.identity.fetch import Fetch
from omnirelay.identity.issuer import IssuerSettings, build_issuer
from omnirelay.identity.policy import Authorize, GrantSettings, Policy
from omnirelay.identity.proxies import HeaderSettings, Proxies, ProxySettings
from omnirelay.identity.tls import ServerTls, TlsSettings
from omnirelay.identity.tokens import Bearers
from omnirelay.model.errors import InvalidOption
from omnirelay.model.ports import Clock
from omnirelay.rpc.headers import PEER_ID
from omnirelay.rpc.meta import Certificate, RequestMeta
from omnirelay.rpc.middleware import Middleware


class IdentitySettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    trusted_proxies: tuple[str, ...] = ()
    """Networks (CIDR) whose identity headers are believed."""
    proxy_principals: tuple[str, ...] = ()
    """Principals of the proxies' own certificates. If any are listed, a proxy must show one."""
    proxy_plaintext: bool = False
    """Believe a listed proxy over an unprotected link that is not loopback."""
    anonymous: bool = False
    """Let callers without a proof in, as `anonymous`; what they may do, roles must still say."""
    headers: HeaderSettings = HeaderSettings()
    certificates: CertificateSettings = CertificateSettings()
    tls: TlsSettings | None = None
    issuers: tuple[IssuerSettings, ...] = ()
    roles: tuple[GrantSettings, ...] = ()

    @property
    def can_prove(self) -> bool:
        """Whether there is any way for a caller to be somebody."""
        has_clients = self.tls is not None and self.tls.client_ca_file is not None
        return has_clients or bool(self.issuers or self.trusted_proxies)

    @property
    def is_on(self) -> bool:
        return self.can_prove or bool(self.roles)


def read_settings(section: Mapping[str, Any]) -> IdentitySettings:
    """From the parsed section. Raises InvalidOption, naming the key. Any: whatever TOML holds."""
    try:
        return msgspec.convert(section, IdentitySettings)
    except msgspec.ValidationError as error:
        raise InvalidOption(f"[identity] in omnirelay.toml: {error}") from None


class Identity:
    """`binding` then `authorize` belong in front of everything that acts on a call."""

    def __init__(
        self,
        *,
        is_on: bool,
        binding: Binding,
        policy: Policy,
        bearers: Bearers | None,
        proxies: Proxies,
    ) -> None:
        self.is_on = is_on
        self.binding = binding
        self.proxies = proxies
        self.policy = policy
        self.authorize = Authorize(policy)
        self.tls: ServerTls | None = None
        self._bearers = bearers

    @property
    def middleware(self) -> tuple[Middleware, Middleware]:
        return self.binding, self.authorize

    async def prove(self, meta: RequestMeta) -> RequestMeta:
        """For what is no procedure: the control plane."""
        return await self.binding.prove(meta)

    def certificate_of(self, encoded: bytes) -> Certificate:
        """What a transport calls with the certificate of a finished handshake (DER or PEM). Raises
        Unauthenticated."""
        return certificate_of(encoded) if self.tls is None else self.tls.verified(encoded)

    async def close(self) -> None:
        if self._bearers is not None:
            await self._bearers.close()


def build_identity(
    settings: IdentitySettings, clock: Clock, *, fetch: Fetch | None = None
) -> Identity:
    """Raises InvalidOption, naming the setting, for anything that cannot work."""
    _check(settings)
    bearers = None
    if settings.issuers:
        issuers = tuple(build_issuer(issuer, clock, fetch) for issuer in settings.issuers)
        bearers = Bearers(issuers, clock)
    proxies = Proxies(
        ProxySettings(
            trusted=settings.trusted_proxies,
            principals=settings.proxy_principals,
            plaintext=settings.proxy_plaintext,
            headers=settings.headers,
        )
    )
    defaults = HeaderSettings().names()
    policy = Policy(settings.roles, is_open=not settings.is_on)
    binding = Binding(
        is_on=settings.is_on,
        allow_anonymous=settings.anonymous,
        certificates=CertificateNames(settings.certificates),
        bearers=bearers,
        proxies=proxies,
        # The usual names are dropped even where a proxy uses others.
        identity_headers=(*settings.headers.names(), *defaults),
        is_peer=policy.is_peer,
    )
    identity = Identity(
        is_on=settings.is_on, binding=binding, policy=policy, bearers=bearers, proxies=proxies
    )
    if settings.tls is not None:
        identity.tls = ServerTls(**msgspec.structs.asdict(settings.tls))
    return identity


def _check(settings: IdentitySettings) -> None:
    names = [issuer.issuer for issuer in settings.issuers]
    if len(set(names)) < len(names):
        raise InvalidOption("identity.issuers: an issuer is listed twice")
    if settings.roles and not settings.can_prove and not settings.anonymous:
        raise InvalidOption(
            "identity.roles: nobody can be proved to have one: configure issuers, "
            "tls.client_ca_file or trusted_proxies, or allow anonymous callers"
        )
    if settings.proxy_principals and not settings.trusted_proxies:
        raise InvalidOption("identity.proxy_principals: needs trusted_proxies")
    written = settings.headers.names()
    if len(set(written)) < len(written):
        raise InvalidOption("identity.headers: two of them have the same name")
    if taken := {*written} & {*SECRET, PEER_ID}:
        raise InvalidOption(f"identity.headers: {min(taken)!r} means something else already")
