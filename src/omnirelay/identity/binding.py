"""The principal of a call: proved from what came with it, or refused. Everything else that claims
to name somebody is dropped, so that nothing behind this door can believe it by mistake."""

import logging
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Final

import msgspec

from omnirelay.identity.certificates import CertificateNames
from omnirelay.identity.naming import principal_named
from omnirelay.identity.proxies import Proxies, ProxySays, same_certificate
from omnirelay.identity.tokens import Bearer, Bearers
from omnirelay.model.errors import InvalidArgument, OmniRelayError, Unauthenticated
from omnirelay.model.items import ANONYMOUS
from omnirelay.rpc.headers import FORWARDED, FORWARDED_PRINCIPAL, FORWARDED_PROOF, PEER_ID
from omnirelay.rpc.meta import Certificate, Reply, Request, RequestMeta
from omnirelay.rpc.procedure import Handler, Procedure

log = logging.getLogger(__name__)

AUTHORIZATION: Final = "authorization"
SECRET: Final = frozenset({AUTHORIZATION, "proxy-authorization", "cookie"})
# What proxies and older clients say about a caller. Nobody vouches for any of it.
_HEARSAY: Final = frozenset(
    {"forwarded", "rpc.principal", "rpc-principal", "x-mesh-role", "x-mesh-scope", "x-real-ip"}
)


_VOUCHED: Final = (FORWARDED_PRINCIPAL, FORWARDED_PROOF)

IsPeer = Callable[[str, str], bool]
"""Whether a principal is another node, for a namespace."""


class _Proof(msgspec.Struct, frozen=True):
    what: str
    principal: str
    digest: str | None


class Binding:
    is_settled = True

    def __init__(
        self,
        *,
        is_on: bool,
        allow_anonymous: bool,
        certificates: CertificateNames,
        bearers: Bearers | None,
        proxies: Proxies,
        identity_headers: tuple[str, ...],
        is_peer: IsPeer = lambda principal, namespace: False,
    ) -> None:
        self._is_on = is_on
        self._allow_anonymous = allow_anonymous
        self._certificates = certificates
        self._bearers = bearers
        self._proxies = proxies
        self._is_peer = is_peer
        self._single = frozenset({*identity_headers, *_VOUCHED, AUTHORIZATION, PEER_ID})
        dropped = {*identity_headers, *SECRET, *_HEARSAY, *_VOUCHED}
        # Where everybody is anonymous there is nothing to gain by it, and nodes must be able to.
        self._dropped = frozenset({*dropped, FORWARDED} if is_on else dropped)
        # The same few names come with every call.
        self._judged = lru_cache(maxsize=256)(self._is_dropped)

    def is_idle(self, request: Request) -> bool:
        """Where nobody is asked for a proof, a bare call has nothing to prove or to drop."""
        meta = request.meta
        return (
            not self._is_on
            and meta.peer_id is None
            and meta.principal == ANONYMOUS
            and meta.proof is None
            and not meta.doubled
            and not self._names_dropped(meta.headers)
        )

    def _names_dropped(self, headers: Mapping[str, str]) -> bool:
        return any(map(self._judged, headers)) if headers else False

    async def __call__(self, request: Request, procedure: Procedure, next_: Handler) -> Reply:
        meta = await self.prove(request.meta)
        return await next_(msgspec.structs.replace(request, meta=meta))

    async def prove(self, meta: RequestMeta) -> RequestMeta:
        """The same call with its principal proved and nothing left that names another or holds a
        secret. Raises Unauthenticated, InvalidArgument, or Unavailable while keys are missing."""
        is_passed_on = False
        try:
            principal, proof = await self._proved(meta)
            _check_peer(meta.peer_id)
            if self._is_on and FORWARDED in meta.headers:
                is_passed_on = self._is_from_a_node(meta, principal)
            if is_passed_on:
                principal, proof = _vouched(meta.headers)
        except OmniRelayError as error:
            log.info(
                "refused %s over %s from %s: %s",
                meta.procedure,
                meta.transport,
                meta.address or "here",
                error,
            )
            raise
        headers = meta.headers
        if headers:
            dropped = self._judged
            headers = {name: headers[name] for name in headers if not dropped(name)}
            if is_passed_on:
                headers[FORWARDED] = meta.headers[FORWARDED]
        return msgspec.structs.replace(meta, headers=headers, principal=principal, proof=proof)

    def _is_from_a_node(self, meta: RequestMeta, principal: str) -> bool:
        """A node shows its certificate: a token could be somebody's copy. From anybody else the
        word is dropped, and the call is the caller's own."""
        certificate = meta.certificate
        if certificate is None or self._certificates.principal_of(certificate) != principal:
            return False
        if FORWARDED in meta.doubled:
            raise Unauthenticated(f"the header {FORWARDED} came more than once")
        return self._is_peer(principal, meta.namespace)

    async def _proved(self, meta: RequestMeta) -> tuple[str, str | None]:
        if meta.doubled:
            self._check_doubled(meta.doubled)
        if not self._is_on:
            return ANONYMOUS, None
        proofs = await self._proofs(meta)
        if proofs:
            return _agreed(proofs)
        if self._allow_anonymous:
            return ANONYMOUS, None
        raise Unauthenticated("the call came without a proof of who makes it")

    async def _proofs(self, meta: RequestMeta) -> list[_Proof]:
        """In order of strength: certificate, bearer token, a proxy's word."""
        certificate, principal = meta.certificate, None
        if certificate is not None:
            principal = self._certificates.principal_of(certificate)
        is_proxy = self._proxies.vouches(principal)
        says = None
        if self._proxies.is_trusted(meta.address, certificate, is_proxy):
            says = self._proxies.read(meta.headers)
        own = None if is_proxy else certificate
        proofs = []
        if own is not None and principal is not None:
            proofs.append(_Proof("certificate", principal, own.thumbprint))
        bearer = await self._bearer(meta.headers, _thumbprint(own, says))
        if bearer is not None:
            proofs.append(_Proof("bearer token", bearer.principal, bearer.proof))
        if says is not None:
            proofs.append(_Proof("proxy", says.principal, says.thumbprint))
        if bearer is not None and bearer.thumbprint is not None:
            # The issuer vouches that the holder of this certificate is the token's principal, by
            # whatever name the certificate goes.
            proofs = [proof for proof in proofs if proof.digest != bearer.thumbprint]
        return proofs

    async def _bearer(self, headers: Mapping[str, str], thumbprint: str | None) -> Bearer | None:
        value = headers.get(AUTHORIZATION)
        if value is None:
            return None
        scheme, _, token = value.partition(" ")
        if scheme.lower() != "bearer" or not token:
            raise Unauthenticated("the Authorization header does not hold one bearer token")
        if self._bearers is None:
            raise Unauthenticated("bearer tokens are not believed here: no issuer is configured")
        return await self._bearers.verify(token.strip(" "), thumbprint)

    def _check_doubled(self, doubled: frozenset[str]) -> None:
        for name in doubled:
            if _plain(name) in self._single:
                raise Unauthenticated(f"the header {_plain(name)} came more than once")

    def _is_dropped(self, name: str) -> bool:
        plain = _plain(name)
        if plain in self._dropped or plain.startswith("x-forwarded-"):
            return True
        # Another spelling of a name that means something is nobody's but a deceiver's.
        return plain == PEER_ID and name != PEER_ID


def _vouched(headers: Mapping[str, str]) -> tuple[str, str | None]:
    """What a node says about the caller whose call it passes on; it has proved it itself."""
    written = headers.get(FORWARDED_PRINCIPAL)
    if written is None:
        return ANONYMOUS, None
    principal = principal_named(written, f"the node's {FORWARDED_PRINCIPAL}")
    return principal, headers.get(FORWARDED_PROOF)


def _plain(name: str) -> str:
    return name.replace("_", "-").lower()


def _check_peer(peer_id: str | None) -> None:
    if peer_id is not None and not peer_id.isprintable():
        raise InvalidArgument(f"{PEER_ID} must be printable text")


def _thumbprint(own: Certificate | None, says: ProxySays | None) -> str | None:
    """Of the caller's certificate, as shown to us or to the proxy. Raises Unauthenticated if the
    proxy saw another one."""
    if says is None or says.thumbprint is None:
        return None if own is None else own.thumbprint
    if own is not None and not same_certificate(own.thumbprint, says.thumbprint):
        raise Unauthenticated("two proofs disagree: the certificate and the proxy's thumbprint")
    return says.thumbprint


def _agreed(proofs: list[_Proof]) -> tuple[str, str | None]:
    first = proofs[0]
    for other in proofs[1:]:
        if other.principal != first.principal:
            raise Unauthenticated(
                f"two proofs disagree: the {first.what} and the {other.what} name different "
                f"principals"
            )
    return first.principal, first.digest
