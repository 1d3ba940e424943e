"""What a trusted proxy says about the caller behind it, and who is one."""

import hmac
import re
from collections.abc import Mapping
from functools import lru_cache
from ipaddress import (
    IPv4Address,
    IPv4Network,
    IPv6Address,
    IPv6Network,
    ip_address,
    ip_network,
)

import msgspec

from omnirelay.identity.naming import patterns, principal_named
from omnirelay.model.errors import InvalidOption, Unauthenticated
from omnirelay.rpc.meta import Certificate

_HEADER = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
_THUMBPRINT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")


class HeaderSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """`[identity.headers]`: what the trusted proxies write. A blank name is never believed."""

    subject: str = "x-mtls-subject"
    thumbprint: str = "x-mtls-thumbprint"
    principal: str = "x-client-principal"

    def names(self) -> tuple[str, ...]:
        return tuple(name for name in (self.subject, self.thumbprint, self.principal) if name)


class ProxySettings(msgspec.Struct, frozen=True, kw_only=True):
    trusted: tuple[str, ...] = ()
    principals: tuple[str, ...] = ()
    plaintext: bool = False
    headers: HeaderSettings = HeaderSettings()


class ProxySays(msgspec.Struct, frozen=True):
    principal: str
    thumbprint: str | None


class Proxies:
    def __init__(self, settings: ProxySettings) -> None:
        """Raises InvalidOption, naming the setting."""
        self._networks = tuple(_network(written) for written in settings.trusted)
        self._principals = patterns(settings.principals, "identity.proxy_principals")
        self._plaintext = settings.plaintext
        self._headers = settings.headers
        for name in settings.headers.names():
            if not _HEADER.fullmatch(name):
                raise InvalidOption(
                    f"identity.headers: {name!r} must be lower-case words joined by hyphens"
                )
        # Addresses come back with every call of a connection; parsing one costs more than the rest.
        self._judged = lru_cache(maxsize=1024)(self._judge)

    def vouches(self, principal: str | None) -> bool:
        """Whether that certificate is a proxy's own, so that it says nothing about the caller."""
        return principal is not None and any(p.matches(principal) for p in self._principals)

    def is_listed(self, address: str) -> bool:
        """Whether a trusted proxy may be there; nothing that it says is believed for that."""
        return self._judged(address)[0]

    def is_trusted(self, address: str, certificate: Certificate | None, vouches: bool) -> bool:
        """A listed address, over a link that nobody can write on: loopback or a certificate. If
        the proxies' certificates are listed too, nothing but one of them will do."""
        is_listed, is_loopback = self._judged(address)
        if not is_listed:
            return False
        if self._principals and not is_loopback:
            return vouches
        return is_loopback or self._plaintext or certificate is not None

    def read(self, headers: Mapping[str, str]) -> ProxySays | None:
        """Raises Unauthenticated for what contradicts itself or cannot be what it should."""
        names = self._headers
        named = [
            principal_named(value, f"the proxy's {name}")
            for name in (names.principal, names.subject)
            if (value := _given(headers, name))
        ]
        thumbprint = _thumbprint(_given(headers, names.thumbprint))
        if not named:
            if thumbprint is not None:
                raise Unauthenticated("the proxy sent a thumbprint but no principal")
            return None
        # A proxy that writes one of the two and passes the other through would let callers choose.
        if len(set(named)) > 1:
            raise Unauthenticated("the proxy's headers name different principals")
        return ProxySays(named[0], thumbprint)

    def _judge(self, address: str) -> tuple[bool, bool]:
        parsed = _address(address)
        if parsed is None:
            return False, False
        return any(parsed in network for network in self._networks), parsed.is_loopback


def same_certificate(one: str, other: str) -> bool:
    return hmac.compare_digest(one, other)


def _given(headers: Mapping[str, str], name: str) -> str:
    return headers.get(name, "").strip() if name else ""


def _thumbprint(value: str) -> str | None:
    if not value:
        return None
    plain = value.replace(":", "").lower()
    if not _THUMBPRINT.fullmatch(plain):
        raise Unauthenticated("the proxy's thumbprint is not a digest in hex")
    return plain


def _network(written: str) -> IPv4Network | IPv6Network:
    try:
        network = ip_network(written)
    except ValueError as error:
        raise InvalidOption(f"identity.trusted_proxies: {error}") from None
    if network.prefixlen == 0:
        raise InvalidOption(
            f"identity.trusted_proxies: {written!r} is everybody, so anybody could be anyone"
        )
    return network


def _address(text: str) -> IPv4Address | IPv6Address | None:
    """Without port and zone; an IPv4 address that came through an IPv6 socket is the IPv4 one.
    None for anything else: a Unix socket, a caller in the same process."""
    host = text
    if text.startswith("["):
        host = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        host = text.partition(":")[0]
    try:
        parsed = ip_address(host.partition("%")[0])
    except ValueError:
        return None
    if isinstance(parsed, IPv6Address) and parsed.ipv4_mapped is not None:
        return parsed.ipv4_mapped
    return parsed
