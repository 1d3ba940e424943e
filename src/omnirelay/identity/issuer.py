"""Whose bearer tokens are believed, and on which terms."""

import heapq

import msgspec

from omnirelay.identity.fetch import Fetch, HttpFetch, checked_url
from omnirelay.identity.keys import ASYMMETRIC, SYMMETRIC, FileKeys, KeyRing, UrlKeys
from omnirelay.model import limits
from omnirelay.model.errors import InvalidOption, Overloaded, Unauthenticated
from omnirelay.model.ports import Clock


class IssuerSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """`[[identity.issuers]]`."""

    issuer: str
    audience: str | tuple[str, ...]
    """Who we are to the issuer; a token must be meant for one of these."""
    jwks_file: str | None = None
    jwks_url: str | None = None
    jwks_ca_file: str | None = None
    """Authority of the server at `jwks_url`, if it is not one of the system's."""
    algorithms: tuple[str, ...] = ("RS256", "ES256", "EdDSA")
    symmetric: bool = False
    """Allow HS256 and its kin: whoever can check such a token can also make one."""
    principal_claim: str = "sub"
    prefix: str = ""
    """Put before each principal, so that two issuers cannot name the same one."""
    leeway_s: float = 30.0
    lifetime_s: float = 24 * 3600.0
    """A token that lives longer is refused, however it is signed."""
    single_use: bool = False
    """Refuse a `jti` that came before. Not for connections that send one token with every call."""
    require_binding: bool = False
    """Refuse tokens that are not bound to a client certificate by `cnf`."""
    refresh_s: float = 300.0
    retry_s: float = 10.0
    stale_s: float = 3600.0
    timeout_s: float = 5.0


class Issuer:
    def __init__(self, settings: IssuerSettings, keys: KeyRing) -> None:
        self.name = settings.issuer
        given = settings.audience
        self.audience = [given] if isinstance(given, str) else list(given)
        self.algorithms = frozenset(settings.algorithms)
        self.principal_claim = settings.principal_claim
        self.prefix = settings.prefix
        self.leeway_s = settings.leeway_s
        self.lifetime_s = settings.lifetime_s
        self.require_binding = settings.require_binding
        self.keys = keys
        self.used = UsedIds() if settings.single_use else None


class UsedIds:
    """Ids of single-use tokens, until the token has expired anyway."""

    def __init__(self, ids_max: int = limits.USED_BEARERS_MAX) -> None:
        self._ids_max = ids_max
        self._seen: set[str] = set()
        self._by_end: list[tuple[float, str]] = []

    def take(self, jti: object, ends_s: float, now_s: float) -> None:
        """Raises Unauthenticated for one that is missing or came before, Overloaded if there is no
        room to remember it: to forget one would let it come twice."""
        while self._by_end and self._by_end[0][0] <= now_s:
            self._seen.discard(heapq.heappop(self._by_end)[1])
        if not isinstance(jti, str) or not jti:
            raise Unauthenticated("the bearer token has no `jti`, and its issuer's must")
        if jti in self._seen:
            raise Unauthenticated("the bearer token was used before")
        if len(self._seen) >= self._ids_max:
            raise Overloaded(f"{self._ids_max} single-use bearer tokens are remembered already")
        self._seen.add(jti)
        heapq.heappush(self._by_end, (ends_s, jti))


def build_issuer(settings: IssuerSettings, clock: Clock, fetch: Fetch | None = None) -> Issuer:
    """Raises InvalidOption, naming the setting. A URL is first asked when a token comes."""
    _check(settings)
    algorithms = frozenset(settings.algorithms)
    if settings.jwks_file is not None:
        return Issuer(settings, FileKeys(settings.jwks_file, algorithms, clock))
    assert settings.jwks_url is not None, "checked above"
    checked_url(settings.jwks_url)
    if fetch is None:
        fetch = HttpFetch(ca_file=settings.jwks_ca_file, timeout_s=settings.timeout_s)
    keys = UrlKeys(
        settings.jwks_url,
        algorithms,
        clock,
        fetch,
        refresh_s=settings.refresh_s,
        retry_s=settings.retry_s,
        stale_s=settings.stale_s,
    )
    return Issuer(settings, keys)


def _check(settings: IssuerSettings) -> None:
    where = f"identity.issuers ({settings.issuer!r})"
    audience = settings.audience
    audiences = (audience,) if isinstance(audience, str) else audience
    if not settings.issuer.strip() or not audiences or not all(a.strip() for a in audiences):
        raise InvalidOption(f"{where}: issuer and audience must not be blank")
    if (settings.jwks_file is None) == (settings.jwks_url is None):
        raise InvalidOption(f"{where}: needs jwks_file or jwks_url, one of the two")
    if not settings.principal_claim:
        raise InvalidOption(f"{where}: principal_claim must not be blank")
    _check_algorithms(settings, where)
    for name, low, high in (
        ("leeway_s", 0, limits.BEARER_LEEWAY_S_MAX),
        ("lifetime_s", 1, limits.BEARER_LIFETIME_S_MAX),
        ("refresh_s", 1, 24 * 3600),
        ("retry_s", 1, 3600),
        ("stale_s", settings.refresh_s, 7 * 24 * 3600),
        ("timeout_s", 0.1, 60),
    ):
        value = getattr(settings, name)
        if not low <= value <= high:
            raise InvalidOption(f"{where}: {name} is {value:g}, must be {low:g} to {high:g}")


def _check_algorithms(settings: IssuerSettings, where: str) -> None:
    allowed = frozenset[str]().union(*ASYMMETRIC.values())
    if settings.symmetric:
        allowed |= SYMMETRIC["oct"]
    wrong = [name for name in settings.algorithms if name not in allowed]
    if wrong or not settings.algorithms:
        raise InvalidOption(
            f"{where}: algorithms {list(settings.algorithms)!r} must be some of "
            f"{', '.join(sorted(allowed))}"
            + ("" if settings.symmetric else " (HS… only with `symmetric = true`)")
        )
    if settings.symmetric and not set(settings.algorithms) <= SYMMETRIC["oct"]:
        # One list for both kinds is how a public key ends up as a shared secret.
        raise InvalidOption(f"{where}: a symmetric issuer has HS… algorithms and no others")
