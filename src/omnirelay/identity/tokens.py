"""Bearer tokens (JWT, RFC 7519): verified against one issuer's pinned terms, or refused.

Nothing a token says about itself chooses how it is checked, beyond picking one of the configured
issuers and one of that issuer's keys. No refusal repeats any part of it.
"""

import hashlib
import hmac
import re
from base64 import urlsafe_b64decode
from typing import Any

import jwt
import msgspec

from omnirelay.identity.issuer import Issuer
from omnirelay.identity.naming import principal_named
from omnirelay.model import limits
from omnirelay.model.errors import Unauthenticated
from omnirelay.model.ports import Clock

_B64TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*")  # RFC 6750
_UNCHECKED: Any = {"verify_signature": False}  # Any: PyJWT keeps the type of its options private
# Times are checked here, by the clock that came in through its port.
_CHECKED: Any = {
    "require": ["exp", "iat", "iss", "aud"],
    "enforce_minimum_key_length": True,
    "verify_exp": False,
    "verify_iat": False,
    "verify_nbf": False,
    "verify_sub": False,
    "verify_jti": False,
}


class Bearer(msgspec.Struct, frozen=True):
    """What a verified bearer token proves."""

    principal: str
    proof: str
    """SHA-256 of its `jti`, or of the whole if it has none."""
    thumbprint: str | None
    """The certificate it is bound to (RFC 8705): useless without it."""


class _Verified(msgspec.Struct, frozen=True):
    bearer: Bearer
    issuer: Issuer
    keys_version: int
    ends_s: float


class Bearers:
    def __init__(self, issuers: tuple[Issuer, ...], clock: Clock) -> None:
        self._issuers = {issuer.name: issuer for issuer in issuers}
        self._clock = clock
        self._verified: dict[str, _Verified] = {}

    async def verify(self, token: str, thumbprint: str | None) -> Bearer:
        """`thumbprint` is that of the caller's certificate, if one was proved. Raises
        Unauthenticated; Unavailable if the issuer's keys cannot be had."""
        if len(token) > limits.BEARER_BYTES_MAX:
            raise Unauthenticated(
                f"the bearer token is longer than {limits.BEARER_BYTES_MAX} bytes"
            )
        digest = hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()
        known = await self._known(digest)
        if known is not None:
            _check_binding(known.bearer, known.issuer, thumbprint)
            return known.bearer
        if not _B64TOKEN.fullmatch(token):
            raise Unauthenticated("the Authorization header does not hold one bearer token")
        issuer, header = self._claimed(token)
        version = await issuer.keys.fresh()
        claims = await self._signed(token, issuer, header)
        ends_s = self._check_times(claims, issuer)
        bearer = _bearer(claims, issuer, digest)
        _check_binding(bearer, issuer, thumbprint)
        if issuer.used is not None:
            issuer.used.take(claims.get("jti"), ends_s, self._now_s())
        else:
            self._remember(digest, _Verified(bearer, issuer, version, ends_s))
        return bearer

    async def close(self) -> None:
        for issuer in self._issuers.values():
            await issuer.keys.close()

    async def _known(self, digest: str) -> _Verified | None:
        known = self._verified.get(digest)
        if known is None:
            return None
        is_good = known.keys_version == await known.issuer.keys.fresh()
        if is_good and self._now_s() < known.ends_s:
            return known
        self._verified.pop(digest, None)
        return None

    def _remember(self, digest: str, verified: _Verified) -> None:
        if len(self._verified) >= limits.VERIFIED_BEARERS_MAX:
            del self._verified[next(iter(self._verified))]
        self._verified[digest] = verified

    def _claimed(self, token: str) -> tuple[Issuer, dict[str, Any]]:
        """Which issuer's terms it asks to be held to; nothing of this is believed yet."""
        try:
            read = jwt.decode_complete(token, options=_UNCHECKED)
        except (jwt.PyJWTError, ValueError, RecursionError):
            raise Unauthenticated("the bearer token is malformed") from None
        claimed = read["payload"].get("iss")
        issuer = self._issuers.get(claimed) if isinstance(claimed, str) else None
        if issuer is None:
            raise Unauthenticated("the bearer token's issuer is not one of those believed")
        return issuer, read["header"]

    async def _signed(self, token: str, issuer: Issuer, header: dict[str, Any]) -> dict[str, Any]:
        algorithm = header.get("alg")
        if not isinstance(algorithm, str) or algorithm not in issuer.algorithms:
            raise Unauthenticated("the bearer token's algorithm is not one of its issuer's")
        key = await issuer.keys.find(header.get("kid"), algorithm)
        if key is None:
            raise Unauthenticated("no key of the issuer fits the bearer token")
        try:
            claims: dict[str, Any] = jwt.decode(
                token,
                key.material,
                algorithms=[algorithm],
                audience=issuer.audience,
                issuer=issuer.name,
                options=_CHECKED,
            )
        except jwt.InvalidSignatureError:
            raise Unauthenticated("the bearer token's signature is wrong") from None
        except jwt.InvalidAudienceError:
            raise Unauthenticated("the bearer token is for another audience") from None
        except jwt.MissingRequiredClaimError as error:
            raise Unauthenticated(f"the bearer token has no `{error.claim}`") from None
        except (jwt.PyJWTError, ValueError, RecursionError):
            raise Unauthenticated("the bearer token is not valid") from None
        return claims

    def _check_times(self, claims: dict[str, Any], issuer: Issuer) -> float:
        """When it ends, leeway included."""
        now_s, leeway_s = self._now_s(), issuer.leeway_s
        issued_s = _seconds(claims, "iat")
        expires_s = _seconds(claims, "exp")
        starts_s = max(issued_s, _seconds(claims, "nbf") if "nbf" in claims else issued_s)
        if now_s >= expires_s + leeway_s:
            raise Unauthenticated("the bearer token has expired")
        if starts_s > now_s + leeway_s:
            raise Unauthenticated("the bearer token is not valid yet")
        if expires_s - min(issued_s, now_s) > issuer.lifetime_s + leeway_s:
            raise Unauthenticated(
                f"the bearer token lives longer than the {issuer.lifetime_s:g} s its issuer is "
                f"believed for"
            )
        return expires_s + leeway_s

    def _now_s(self) -> float:
        return self._clock.wall_ms() / 1000


def _seconds(claims: dict[str, Any], name: str) -> float:
    value = claims[name]
    # bool is an int to Python, and NaN compares as neither early nor late.
    if type(value) not in (int, float) or not 0 <= value <= 1 << 40:
        raise Unauthenticated(f"the bearer token's `{name}` is not a time")
    return float(value)


def _bearer(claims: dict[str, Any], issuer: Issuer, digest: str) -> Bearer:
    name = principal_named(claims.get(issuer.principal_claim), "the bearer token")
    jti = claims.get("jti")
    if jti is not None and (not isinstance(jti, str) or not jti):
        raise Unauthenticated("the bearer token's `jti` is not a text")
    proof = digest
    if jti is not None:
        proof = hashlib.sha256(jti.encode("utf-8", "surrogatepass")).hexdigest()
    principal = principal_named(issuer.prefix + name, "the bearer token")
    return Bearer(principal, proof, _bound_to(claims))


def _bound_to(claims: dict[str, Any]) -> str | None:
    confirmation = claims.get("cnf")
    if confirmation is None:
        return None
    # A binding we cannot check (DPoP, a key in the claim) must not turn into no binding.
    if not isinstance(confirmation, dict) or set(confirmation) != {"x5t#S256"}:
        raise Unauthenticated("the bearer token is bound in a way that cannot be checked here")
    encoded = confirmation["x5t#S256"]
    try:
        digest = urlsafe_b64decode(f"{encoded}==")
    except ValueError:
        digest = b""
    if len(digest) != 32:
        raise Unauthenticated("the bearer token's certificate binding is malformed")
    return digest.hex()


def _check_binding(bearer: Bearer, issuer: Issuer, thumbprint: str | None) -> None:
    if bearer.thumbprint is None:
        if issuer.require_binding:
            raise Unauthenticated("the bearer token is not bound to a certificate")
        return
    if thumbprint is None or not hmac.compare_digest(bearer.thumbprint, thumbprint):
        raise Unauthenticated("the bearer token is bound to another certificate")
