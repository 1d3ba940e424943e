"""What the case list cannot show: time, memory and the digests that stand for a secret."""

import hashlib
import json
import time
from pathlib import Path

import pytest

from omnirelay.identity.issuer import IssuerSettings, UsedIds, build_issuer
from omnirelay.identity.keys import SYMMETRIC
from omnirelay.identity.tokens import Bearers
from omnirelay.model.errors import InvalidOption, Overloaded, Unauthenticated
from omnirelay.testing.issuers import AUDIENCE, Signer, b64

SIGNER = Signer("https://issuer.example")


class Hands:
    """Starts at the real time, since the signer stamps that; then moved by hand."""

    def __init__(self) -> None:
        self.ms = int(time.time() * 1000)

    def monotonic_ms(self) -> int:
        return self.ms

    def wall_ms(self) -> int:
        return self.ms


class Desk:
    def __init__(self, folder: Path, **settings: object) -> None:
        self.clock = Hands()
        self.path = folder / "keys.json"
        self.path.write_bytes(SIGNER.key_set())
        given = {"issuer": SIGNER.name, "audience": AUDIENCE, "jwks_file": str(self.path)}
        built = IssuerSettings(**{**given, **settings})  # type: ignore[arg-type]
        self.bearers = Bearers((build_issuer(built, self.clock),), self.clock)

    async def principal(self, token: str) -> str:
        return (await self.bearers.verify(token, None)).principal


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


async def test_a_token_ends_with_its_leeway_even_if_it_was_good_a_moment_ago(desk: Desk) -> None:
    token = SIGNER.token(exp=desk.clock.ms // 1000 + 60)
    for seconds in (0, 60, 29):
        desk.clock.ms += seconds * 1000
        assert await desk.principal(token) == "alice"
    desk.clock.ms += 1000
    with pytest.raises(Unauthenticated, match="expired"):
        await desk.principal(token)


async def test_a_token_of_a_key_that_was_withdrawn_is_refused_though_it_was_good_before(
    desk: Desk,
) -> None:
    token = SIGNER.token()
    await desk.principal(token)
    only_two = {"keys": json.loads(SIGNER.key_set())["keys"][1:]}
    desk.path.write_text(json.dumps(only_two))
    desk.clock.ms += 1000
    with pytest.raises(Unauthenticated, match="no key"):
        await desk.principal(token)


async def test_a_token_that_differs_in_one_bit_from_a_known_one_is_checked_anew(
    desk: Desk,
) -> None:
    token = SIGNER.token()
    await desk.principal(token)
    head, payload, signature = token.split(".")
    for at in (0, len(signature) // 2):
        other = "B" if signature[at] == "A" else "A"
        with pytest.raises(Unauthenticated):
            await desk.principal(f"{head}.{payload}.{signature[:at]}{other}{signature[at + 1 :]}")


async def test_known_tokens_are_bounded(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("omnirelay.model.limits.VERIFIED_BEARERS_MAX", 3)
    for number in range(10):
        await desk.principal(SIGNER.token(jti=f"j{number}"))
    assert len(desk.bearers._verified) == 3


async def test_the_proof_is_the_digest_of_the_id_or_else_of_the_whole(desk: Desk) -> None:
    with_id = await desk.bearers.verify(SIGNER.token(jti="j-1"), None)
    assert with_id.proof == hashlib.sha256(b"j-1").hexdigest()
    token = SIGNER.token()
    without = await desk.bearers.verify(token, None)
    assert without.proof == hashlib.sha256(token.encode()).hexdigest()


async def test_a_claim_and_a_prefix_of_choice_make_the_principal(tmp_path: Path) -> None:
    desk = Desk(tmp_path, principal_claim="email", prefix="corp:")
    assert await desk.principal(SIGNER.token(email="a@example.org")) == "corp:a@example.org"
    with pytest.raises(Unauthenticated, match="names no principal"):
        await desk.principal(SIGNER.token())


async def test_a_shared_secret_works_only_where_it_was_asked_for(tmp_path: Path) -> None:
    secret = b64(b"s" * 32)
    (tmp_path / "oct.json").write_text(json.dumps({"keys": [{"kty": "oct", "k": secret}]}))
    oct_file = str(tmp_path / "oct.json")
    with pytest.raises(InvalidOption, match="none of its keys"):
        Desk(tmp_path, jwks_file=oct_file)
    Desk(tmp_path, jwks_file=oct_file, symmetric=True, algorithms=("HS256",))


def test_a_used_id_is_refused_until_its_token_has_expired() -> None:
    used = UsedIds(ids_max=2)
    used.take("a", ends_s=10, now_s=0)
    with pytest.raises(Unauthenticated, match="used before"):
        used.take("a", ends_s=10, now_s=9.9)
    used.take("b", ends_s=20, now_s=0)
    with pytest.raises(Overloaded):
        used.take("c", ends_s=20, now_s=0)
    used.take("c", ends_s=20, now_s=10)


@pytest.mark.parametrize(
    ("wrong", "names"),
    [
        ({"issuer": " "}, "issuer and audience"),
        ({"audience": ""}, "issuer and audience"),
        ({"audience": ()}, "issuer and audience"),
        ({"audience": ("a", "")}, "issuer and audience"),
        ({"jwks_file": None}, "jwks_file or jwks_url"),
        ({"jwks_url": "https://issuer.example"}, "one of the two"),
        ({"principal_claim": ""}, "principal_claim"),
        ({"algorithms": ()}, "algorithms"),
        ({"algorithms": ("none",)}, "algorithms"),
        ({"algorithms": ("HS256",)}, "symmetric = true"),
        ({"algorithms": ("HS256", "RS256"), "symmetric": True}, "no others"),
        ({"leeway_s": -1}, "leeway_s"),
        ({"leeway_s": 3600}, "leeway_s"),
        ({"leeway_s": float("nan")}, "leeway_s"),
        ({"lifetime_s": 0}, "lifetime_s"),
        ({"retry_s": 0}, "retry_s"),
        ({"stale_s": 1}, "stale_s"),
        ({"timeout_s": 1e9}, "timeout_s"),
    ],
)
def test_terms_that_cannot_work_are_refused_by_name(
    tmp_path: Path, wrong: dict[str, object], names: str
) -> None:
    with pytest.raises(InvalidOption, match=names):
        Desk(tmp_path, **wrong)


def test_the_defaults_are_asymmetric() -> None:
    defaults = IssuerSettings(issuer="i", audience="a").algorithms
    assert not set(defaults) & SYMMETRIC["oct"]
