"""Callers that try to be somebody, honestly or not, and what must come of each. One list for every
wire: a suite turns a `Call` into a request of its transport and compares what comes back.

A wire that cannot carry a header as it is written (gRPC has no capitals) sends its nearest form;
one without a query string leaves `query` out. Neither changes the outcome.
"""

import json
from collections.abc import Callable
from typing import Any

import msgspec

from omnirelay.model.errors import OmniRelayError, TooLarge, Unauthenticated, Unavailable
from omnirelay.testing.identity_world import WORKER, IdentityWorld
from omnirelay.testing.issuers import AUDIENCE, b64

Pairs = list[tuple[str, str]]


class Call(msgspec.Struct, frozen=True):
    headers: Pairs = []
    client: str | None = None
    """The certificate of `IdentityWorld.clients` that the caller shows."""
    query: dict[str, str] = {}


class Case(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    call: Callable[[IdentityWorld], Call]
    accepted_as: str | None = None
    refused_with: tuple[type[OmniRelayError], ...] = ()
    proxied: bool = False
    """Played on the node that trusts loopback as its proxy."""
    anonymous: bool = False
    """Played on the node that lets callers without a proof in."""
    sends: int = 1
    """How often the same call is sent; the last is judged, those before it are accepted."""


def bearer(token: str) -> Pairs:
    return [("Authorization", f"Bearer {token}")]


def _refused(name: str, call: Callable[[IdentityWorld], Call], **more: Any) -> Case:
    return Case(name=name, call=call, refused_with=(Unauthenticated,), **more)


def _token(name: str, token: Callable[[IdentityWorld], str], **more: Any) -> Case:
    return _refused(name, lambda world: Call(bearer(token(world))), **more)


def _spoofed(name: str) -> Case:
    return _refused(f"{name} from nobody's proxy", lambda world: Call([(name, "root")]))


def _good(name: str, who: str, call: Callable[[IdentityWorld], Call], **more: Any) -> Case:
    return Case(name=name, call=call, accepted_as=who, **more)


def _keys(path: str, why: str) -> Case:
    return Case(
        name=f"the issuer's keys {why}",
        call=lambda world: Call(bearer(world.broken[path].token({"kid": "two"}))),
        refused_with=(Unavailable,),
    )


def _in_s(world: IdentityWorld, seconds: int) -> int:
    return int(world.main.claims()["iat"]) + seconds


TOKENS: list[Case] = [
    _token("alg none", lambda w: w.main.unsigned("none")),
    _token("alg none in odd case", lambda w: w.main.unsigned("nOnE")),
    _token("blank alg", lambda w: w.main.unsigned("")),
    _token("no alg", lambda w: w.main.token({"alg": None})),
    _token("alg that is a list", lambda w: w.main.token({"alg": ["RS256"]})),
    _token("HS256 with the RSA public key as its secret", lambda w: w.main.confused()),
    _token("an algorithm nobody pinned", lambda w: w.main.token({"alg": "RS384"})),
    _token("the other key's algorithm", lambda w: w.main.token({"alg": "ES256"})),
    _token("unknown crit", lambda w: w.main.token({"crit": ["exp2"], "exp2": 1})),
    _token("empty crit", lambda w: w.main.token({"crit": []})),
    _token("payload said to be detached", lambda w: w.main.token({"b64": False, "crit": ["b64"]})),
    _token("unknown kid", lambda w: w.main.token({"kid": "three"})),
    _token("kid that is a path", lambda w: w.main.token({"kid": "../../../dev/null"})),
    _token("kid that is a number", lambda w: w.main.token({"kid": 1})),
    _token("the other key's kid", lambda w: w.main.token({"kid": "two", "alg": "RS256"})),
    _token(
        "a key brought along",
        lambda w: w.stranger.token({"jwk": json.loads(w.stranger.key_set())}, iss=w.main.name),
    ),
    _token(
        "an address of keys brought along",
        lambda w: w.stranger.token({"jku": w.key_server.url()}, iss=w.main.name),
    ),
    _token("signed by a stranger", lambda w: w.stranger.token(iss=w.main.name)),
    _token("claims changed after signing", lambda w: w.main.tampered()),
    _token("signature left out", lambda w: w.main.unsigned("RS256")),
    _token("signature cut short", lambda w: w.main.token()[:-8]),
    _token("expired", lambda w: w.main.token(iat=_in_s(w, -7200), exp=_in_s(w, -3600))),
    _token("expired beyond the leeway", lambda w: w.main.token(exp=_in_s(w, -31))),
    _token("not yet valid", lambda w: w.main.token(nbf=_in_s(w, 600))),
    _token("issued in the future", lambda w: w.main.token(iat=_in_s(w, 600))),
    _token("far-future exp", lambda w: w.main.token(exp=_in_s(w, 10 * 365 * 86400))),
    _token("exp beyond all years", lambda w: w.main.token(exp=10**30)),
    _token("exp as a text", lambda w: w.main.token(exp="9999999999")),
    _token("exp that is true", lambda w: w.main.token(exp=True)),
    _token("exp that is no number", lambda w: w.main.token(exp=float("nan"))),
    _token("exp without end", lambda w: w.main.token(exp=float("inf"))),
    _token("nbf as a text", lambda w: w.main.token(nbf="0")),
    _token("no exp", lambda w: w.main.token(exp=None)),
    _token("no iat", lambda w: w.main.token(iat=None)),
    _token("wrong aud", lambda w: w.main.token(aud="another")),
    _token("no aud", lambda w: w.main.token(aud=None)),
    _token("aud that begins like ours", lambda w: w.main.token(aud="omnirelay2")),
    _token("unknown iss", lambda w: w.stranger.token()),
    _token("no iss", lambda w: w.main.token(iss=None)),
    _token("iss that is a list", lambda w: w.main.token(iss=[w.main.name])),
    _token("another issuer's iss", lambda w: w.main.token(iss=w.once.name, jti=w.new_id())),
    _token("no sub", lambda w: w.main.token(sub=None)),
    _token("sub that is a list", lambda w: w.main.token(sub=["alice"])),
    _token("blank sub", lambda w: w.main.token(sub="  ")),
    _token("sub with a line feed", lambda w: w.main.token(sub="alice\nroot")),
    _token("sub too long", lambda w: w.main.token(sub="a" * 600)),
    _token("sub anonymous", lambda w: w.main.token(sub="anonymous")),
    _token("claims that are a list", lambda w: w.main.signed(b"[]")),
    _token("claims that are not JSON", lambda w: w.main.signed(b"\xff{")),
    _token("claims nested without end", lambda w: w.main.signed(b"[" * 8000)),
    _token("a number of 8000 digits", lambda w: w.main.signed(b'{"exp":' + b"9" * 8000 + b"}")),
    _token("header that is not JSON", lambda w: f"{b64(b'{')}.{b64(b'{}')}.AA"),
    _token("one segment", lambda w: "abc"),
    _token("four segments", lambda w: f"{w.main.token()}.abc"),
    _token("jti that is a number", lambda w: w.main.token(jti=7)),
    _token("jti required but missing", lambda w: w.once.token()),
    _token("jti replayed", lambda w: w.once.token(jti=w.new_id()), sends=2),
    _token("20 kB token", lambda w: w.main.token(pad="x" * 14_000)),
    Case(
        name="64 kB token",
        call=lambda w: Call(bearer(w.main.token(pad="x" * 48_000))),
        refused_with=(Unauthenticated, TooLarge, Unavailable),  # some wires hang up on it
    ),
]

BINDINGS: list[Case] = [
    _token("bound to a key that cannot be checked", lambda w: w.main.token(cnf={"jkt": "a"})),
    _token("bound to nonsense", lambda w: w.main.token(cnf={"x5t#S256": "AAAA"})),
    _token("bound to a number", lambda w: w.main.token(cnf={"x5t#S256": 7})),
    _token("bound to a certificate, shown without", lambda w: w.bound_token("worker")),
    _token("binding required but missing", lambda w: w.bound.token()),
    _refused(
        "bound to another certificate",
        lambda w: Call(bearer(w.bound_token("worker")), client="subject"),
    ),
    _good(
        "bound to the certificate shown, by another name",
        "alice",
        lambda w: Call(bearer(w.bound_token("worker")), client="worker"),
    ),
]

KEYS: list[Case] = [
    _keys("html", "are a page"),
    _keys("text", "are no JSON"),
    _keys("moved", "have moved"),
    _keys("packed", "come compressed"),
    _keys("long", "are too long"),
    _keys("many", "are too many"),
    _keys("none", "are none"),
    _keys("gone", "are not found"),
    Case(
        name="the issuer's keys are out of reach",
        call=lambda w: Call(bearer(w.unreachable.token({"kid": "two"}))),
        refused_with=(Unavailable,),
    ),
]

HEADERS: list[Case] = [
    _refused("no proof at all", lambda w: Call()),
    _refused(
        "two Authorization headers", lambda w: Call([*bearer(w.main.token()), *bearer("abc")])
    ),
    _refused(
        "the same Authorization twice", lambda w: Call([*bearer(t := w.main.token()), *bearer(t)])
    ),
    _refused(
        "two tokens in one header",
        lambda w: Call(bearer(f"{w.main.token()}, Bearer {w.main.token()}")),
    ),
    _refused("token in the query", lambda w: Call(query={"access_token": w.main.token()})),
    _refused("token as a cookie", lambda w: Call([("Cookie", f"token={w.main.token()}")])),
    _refused("token without a scheme", lambda w: Call([("Authorization", w.main.token())])),
    _refused("Basic", lambda w: Call([("Authorization", "Basic YWxpY2U6c2VjcmV0")])),
    _refused("Bearer without a token", lambda w: Call([("Authorization", "Bearer")])),
    _refused("blank Authorization", lambda w: Call([("Authorization", "")])),
    *(
        _spoofed(name)
        for name in (
            "x-mtls-subject",
            "x-client-principal",
            "X-Mtls-Subject",
            "X-CLIENT-PRINCIPAL",
            "x_mtls_subject",
            "x_client_principal",
            "x-mtls_subject",
            "x-peer-id",
            "Rpc-Caller",
            "rpc.principal",
            "x-mesh-role",
            "X-Forwarded-For",
            "X-Forwarded-User",
            "X-Forwarded-Client-Cert",
            "Forwarded",
        )
    ),
    _refused(
        "x-mtls-thumbprint from nobody's proxy",
        lambda w: Call([("x-mtls-thumbprint", w.clients["worker"].thumbprint)]),
    ),
    _refused(
        "x-client-principal twice beside a good token",
        lambda w: Call([*bearer(w.main.token()), *[("x-client-principal", "alice")] * 2]),
    ),
    _refused(
        "x-peer-id twice",
        lambda w: Call([*bearer(w.main.token()), ("x-peer-id", "a"), ("x-peer-id", "b")]),
    ),
    _good(
        "claims of nobody's proxy beside a good token",
        "alice",
        lambda w: Call(
            [
                *bearer(w.main.token()),
                ("x-client-principal", "root"),
                ("x-mtls-subject", "CN=root"),
                ("x_mtls_thumbprint", "00"),
                ("X-Forwarded-User", "root"),
                ("x-mesh-role", "operator"),
                ("Cookie", "session=root"),
            ]
        ),
    ),
    _good(
        "x-peer-id names a worker, not the principal",
        "alice",
        lambda w: Call([*bearer(w.main.token()), ("x-peer-id", "root")]),
    ),
    _good(
        "scheme in odd case",
        "alice",
        lambda w: Call([("authorization", f"bEARER {w.main.token()}")]),
    ),
    _good("EC key", "alice", lambda w: Call(bearer(w.main.token({"kid": "two"})))),
    _good("several audiences", "alice", lambda w: Call(bearer(w.main.token(aud=["x", AUDIENCE])))),
    _good("jti once", "alice", lambda w: Call(bearer(w.once.token(jti=w.new_id())))),
    _good("no proof where none is needed", "anonymous", lambda w: Call(), anonymous=True),
    _good(
        "a spoofed header where no proof is needed",
        "anonymous",
        lambda w: Call([("x-client-principal", "root")]),
        anonymous=True,
    ),
    _refused(
        "a bad token where no proof is needed",
        lambda w: Call(bearer(w.main.tampered())),
        anonymous=True,
    ),
]

PROXIED: list[Case] = [
    _good(
        "a proxy's principal", "bob", lambda w: Call([("x-client-principal", "bob")]), proxied=True
    ),
    _good(
        "a proxy's subject and thumbprint",
        "CN=bob,O=Example",
        lambda w: Call(
            [("X-Mtls-Subject", "CN=bob,O=Example"), ("x-mtls-thumbprint", ":".join(["AB"] * 32))]
        ),
        proxied=True,
    ),
    _good(
        "a proxy that shows its own certificate",
        "bob",
        lambda w: Call([("x-client-principal", "bob")], client="proxy"),
        proxied=True,
    ),
    _good(
        "a token through a proxy",
        "alice",
        lambda w: Call([*bearer(w.main.token()), ("x-client-principal", "alice")], client="proxy"),
        proxied=True,
    ),
    *(
        _refused(f"behind a proxy: {name}", call, proxied=True)
        for name, call in (
            ("no proof at all", lambda w: Call()),
            ("its own certificate is nobody's proof", lambda w: Call(client="proxy")),
            (
                "its word against the token",
                lambda w: Call([*bearer(w.main.token()), ("x-client-principal", "bob")]),
            ),
            (
                "its word against the certificate",
                lambda w: Call([("x-client-principal", "bob")], client="worker"),
            ),
            (
                "its two words against each other",
                lambda w: Call([("x-client-principal", "bob"), ("x-mtls-subject", "CN=eve")]),
            ),
            (
                "two principals",
                lambda w: Call([("x-client-principal", "bob"), ("X-Client-Principal", "eve")]),
            ),
            (
                "its thumbprint against the certificate's",
                lambda w: Call(
                    [("x-client-principal", WORKER), ("x-mtls-thumbprint", "ab" * 32)],
                    client="worker",
                ),
            ),
            ("a thumbprint alone", lambda w: Call([("x-mtls-thumbprint", "ab" * 32)])),
            (
                "a thumbprint that is none",
                lambda w: Call([("x-client-principal", "bob"), ("x-mtls-thumbprint", "xyz")]),
            ),
            ("a blank principal", lambda w: Call([("x-client-principal", "  ")])),
            ("the principal anonymous", lambda w: Call([("x-client-principal", "anonymous")])),
            ("underscores", lambda w: Call([("x_client_principal", "bob")])),
        )
    ),
]

CERTIFICATES: list[Case] = [
    _good("SPIFFE id", WORKER, lambda w: Call(client="worker")),
    _good("subject", "CN=reporter", lambda w: Call(client="subject")),
    _good(
        "certificate and token that agree",
        WORKER,
        lambda w: Call(bearer(w.main.token(sub=WORKER)), client="worker"),
    ),
    _refused(
        "certificate and token that disagree",
        lambda w: Call(bearer(w.main.token()), client="worker"),
    ),
    _refused(
        "good certificate, bad token", lambda w: Call(bearer(w.main.tampered()), client="worker")
    ),
    _refused("two SPIFFE ids", lambda w: Call(client="two ids")),
    _refused("another trust domain", lambda w: Call(client="other domain")),
    _refused("no name at all", lambda w: Call(client="nameless")),
]

CASES: list[Case] = [*TOKENS, *BINDINGS, *KEYS, *HEADERS, *PROXIED, *CERTIFICATES]

BAD_CLIENTS: list[str] = [
    "expired",
    "not yet valid",
    "wrong usage",
    "revoked",
    "foreign",
    "self-signed",
    "self-signed as the authority",
]
"""Certificates of `IdentityWorld.clients` with which no handshake may succeed."""
