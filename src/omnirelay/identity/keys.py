"""The public keys of an issuer: read from a key set (RFC 7517), kept fresh from a file or a URL."""

import asyncio
import hashlib
import logging
from collections.abc import Sequence
from typing import Any, Final, Protocol

import jwt
import msgspec

from omnirelay.identity.fetch import Fetch, KeysUnusable
from omnirelay.model import limits
from omnirelay.model.errors import InvalidOption, Unavailable
from omnirelay.model.ports import Clock

log = logging.getLogger(__name__)

ASYMMETRIC: Final = {
    "RSA": frozenset({"RS256", "RS384", "RS512", "PS256", "PS384", "PS512"}),
    "EC P-256": frozenset({"ES256"}),
    "EC P-384": frozenset({"ES384"}),
    "EC P-521": frozenset({"ES512"}),
    "OKP Ed25519": frozenset({"EdDSA"}),
}
SYMMETRIC: Final = {"oct": frozenset({"HS256", "HS384", "HS512"})}
_KINDS: Final = ASYMMETRIC | SYMMETRIC
# Never the private members: of a set that holds them by mistake only the public part is read.
_PUBLIC: tuple[str, ...] = ("kty", "crv", "n", "e", "x", "y", "k")
_LOOK_EVERY_MS: Final = 1000


class Key(msgspec.Struct, frozen=True):
    kid: str | None
    algorithms: frozenset[str]
    material: Any
    """Any: whatever PyJWT made of it."""


class KeyRing(Protocol):
    async def fresh(self) -> int:
        """Look whether the keys changed, if it is time to. The number grows whenever they have.
        Raises Unavailable if there are none to go by."""

    async def find(self, kid: str | None, algorithm: str) -> Key | None:
        """The one key that fits; None if there is none, or a choice. Raises Unavailable if there
        may be one that cannot be had now."""

    async def close(self) -> None: ...


class _Entry(msgspec.Struct):
    """One key as published; what we do not know is ignored, as RFC 7517 asks."""

    kty: str
    kid: str | None = None
    use: str | None = None
    alg: str | None = None
    crv: str | None = None
    key_ops: list[str] | None = None


class _Set(msgspec.Struct):
    keys: list[dict[str, Any]]


def read_key_set(body: bytes, algorithms: frozenset[str]) -> tuple[Key, ...]:
    """Keys that can check one of `algorithms`. Raises KeysUnusable if that leaves none."""
    if len(body) > limits.KEY_SET_BYTES_MAX:
        raise KeysUnusable(f"the key set is longer than {limits.KEY_SET_BYTES_MAX} bytes")
    try:
        published = msgspec.json.decode(body, type=_Set).keys
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise KeysUnusable('it is not a key set: JSON with a list of "keys"') from None
    if len(published) > limits.KEYS_MAX:
        raise KeysUnusable(f"it has {len(published)} keys, at most {limits.KEYS_MAX} are read")
    keys = [key for entry in published if (key := _key_of(entry, algorithms)) is not None]
    if not keys:
        raise KeysUnusable(f"none of its keys can check {', '.join(sorted(algorithms))}")
    return tuple(keys)


def _key_of(published: dict[str, Any], algorithms: frozenset[str]) -> Key | None:
    try:
        entry = msgspec.convert(published, _Entry)
    except msgspec.ValidationError:
        return None
    kind = entry.kty if entry.crv is None else f"{entry.kty} {entry.crv}"
    fit = _KINDS.get(kind, frozenset()) & algorithms
    if entry.alg is not None:
        fit &= {entry.alg}
    is_for_signing = entry.use in (None, "sig") and (
        entry.key_ops is None or "verify" in entry.key_ops
    )
    if not fit or not is_for_signing:
        return None
    public = {name: published[name] for name in _PUBLIC if name in published}
    try:
        made = jwt.PyJWK(public, algorithm=min(fit))
        too_short = made.Algorithm.check_key_length(made.key)
    except (jwt.PyJWTError, ValueError, TypeError, KeyError):
        return None
    return None if too_short else Key(entry.kid, fit, made.key)


def _fitting(keys: Sequence[Key], kid: str | None, algorithm: str) -> Key | None:
    fit = [k for k in keys if algorithm in k.algorithms and (kid is None or k.kid == kid)]
    return fit[0] if len(fit) == 1 else None


class FileKeys:
    """Read again when the file changes. A file that went away or makes no sense is reported, and
    the keys stay: half a rotation must not shut everybody out."""

    def __init__(self, path: str, algorithms: frozenset[str], clock: Clock) -> None:
        """Raises InvalidOption if there are no keys to begin with."""
        self._path = path
        self._algorithms = algorithms
        self._clock = clock
        self._looked_ms = clock.monotonic_ms()
        self._version = 1
        try:
            self._body = self._read()
            self._keys = read_key_set(self._body, algorithms)
        except KeysUnusable as error:
            raise InvalidOption(f"jwks_file: {path}: {error}") from None

    async def fresh(self) -> int:
        now = self._clock.monotonic_ms()
        if now - self._looked_ms >= _LOOK_EVERY_MS:
            self._looked_ms = now
            self._take_up_changes()
        return self._version

    async def find(self, kid: str | None, algorithm: str) -> Key | None:
        return _fitting(self._keys, kid, algorithm)

    async def close(self) -> None:
        return None

    def _take_up_changes(self) -> None:
        # By content: a file's time may not move between two writes that follow each other closely.
        try:
            body = self._read()
            if body == self._body:
                return
            self._body = body
            self._keys = read_key_set(body, self._algorithms)
        except KeysUnusable as error:
            log.warning("the keys of %s stay as they were: %s", self._path, error)
            return
        self._version += 1
        log.info("keys read again from %s", self._path)

    def _read(self) -> bytes:
        try:
            with open(self._path, "rb") as file:
                return file.read(limits.KEY_SET_BYTES_MAX + 1)
        except OSError as error:
            raise KeysUnusable(f"{error.strerror}") from None


class UrlKeys:
    """Fetched when first needed, again when they are old, and again when a bearer token names a key
    that is not there, but never more often than every `retry_s`: strangers choose what a token
    names. One fetch at a time, shared by all who wait for it; who leaves early does not end it."""

    def __init__(
        self,
        url: str,
        algorithms: frozenset[str],
        clock: Clock,
        fetch: Fetch,
        *,
        refresh_s: float,
        retry_s: float,
        stale_s: float,
    ) -> None:
        self._url = url
        self._algorithms = algorithms
        self._clock = clock
        self._fetch = fetch
        self._refresh_ms = refresh_s * 1000
        self._retry_ms = retry_s * 1000
        self._stale_ms = stale_s * 1000
        self._keys: tuple[Key, ...] = ()
        self._digest = b""
        self._version = 0
        self._fetched_ms: int | None = None
        self._tried_ms: int | None = None
        self._is_failing = False
        self._under_way: asyncio.Task[None] | None = None

    async def fresh(self) -> int:
        age_ms = self._age_ms()
        if age_ms is None or age_ms >= self._stale_ms:
            await self._refetched()
        elif age_ms >= self._refresh_ms:
            self._start()  # old but good: nobody waits for the new ones
        age_ms = self._age_ms()
        if age_ms is None or age_ms >= self._stale_ms:
            raise _missing()
        return self._version

    async def find(self, kid: str | None, algorithm: str) -> Key | None:
        found = _fitting(self._keys, kid, algorithm)
        if found is None:
            await self._refetched()
            found = _fitting(self._keys, kid, algorithm)
        if found is None and self._is_failing:
            raise _missing()
        return found

    async def close(self) -> None:
        if self._under_way is not None:
            self._under_way.cancel()
            await asyncio.wait([self._under_way])

    def _age_ms(self) -> int | None:
        return None if self._fetched_ms is None else self._clock.monotonic_ms() - self._fetched_ms

    async def _refetched(self) -> None:
        if (task := self._start()) is not None:
            await asyncio.shield(task)

    def _start(self) -> asyncio.Task[None] | None:
        if self._under_way is not None:
            return self._under_way
        now = self._clock.monotonic_ms()
        if self._tried_ms is not None and now - self._tried_ms < self._retry_ms:
            return None
        self._tried_ms = now
        self._under_way = asyncio.create_task(self._load())
        return self._under_way

    async def _load(self) -> None:
        try:
            body = await self._fetch(self._url)
            keys = read_key_set(body, self._algorithms)
        except KeysUnusable as error:
            self._is_failing = True
            log.warning("no keys from %s: %s", self._url, error)
            return
        finally:
            self._under_way = None
        digest = hashlib.sha256(body).digest()
        if digest != self._digest:
            self._keys, self._digest = keys, digest
            self._version += 1
        self._is_failing = False
        self._fetched_ms = self._clock.monotonic_ms()


def _missing() -> Unavailable:
    return Unavailable("the keys that would prove this bearer token cannot be had now")
