"""A node that knows its callers by their tokens, and who they are."""

from pathlib import Path
from typing import Any

from omnirelay.identity.issuer import IssuerSettings
from omnirelay.identity.policy import GrantSettings, Role
from omnirelay.identity.settings import IdentitySettings
from omnirelay.testing.issuers import AUDIENCE, Signer
from tests.wire.real_node import NAMESPACE

PRODUCER, WORKER, OTHER, OBSERVER, OPERATOR, PEER, NOBODY = (
    "paul",
    "wanda",
    "wim",
    "olga",
    "otto",
    "pia",
    "nemo",
)
ROLES = {
    PRODUCER: Role.PRODUCER,
    WORKER: Role.WORKER,
    OTHER: Role.WORKER,
    OBSERVER: Role.OBSERVER,
    OPERATOR: Role.OPERATOR,
    PEER: Role.PEER,
}


class Guard:
    """Signs tokens for everybody; `identity` believes them."""

    def __init__(self, folder: Path) -> None:
        self.keys = folder / "keys.json"
        self.signer = Signer("https://issuer.example")
        self.publish()

    def publish(self) -> None:
        self.keys.write_bytes(self.signer.key_set())

    def rotate(self) -> None:
        """New keys under the old names."""
        self.signer = Signer("https://issuer.example")
        self.publish()

    def token(self, who: str, **claims: Any) -> str:
        """Any: claims."""
        return self.signer.token({"kid": "two"}, sub=who, **claims)

    def headers(self, who: str, **claims: Any) -> dict[str, str]:
        return {"authorization": f"Bearer {self.token(who, **claims)}"}

    def identity(self, **changed: Any) -> IdentitySettings:
        """Any: fields of IdentitySettings."""
        grants = [
            GrantSettings(role=role, principals=(who,), namespaces=(NAMESPACE, "control"))
            for who, role in ROLES.items()
        ]
        issuer = IssuerSettings(
            issuer=self.signer.name,
            audience=AUDIENCE,
            algorithms=("ES256",),
            jwks_file=str(self.keys),
        )
        return IdentitySettings(**{"issuers": (issuer,), "roles": tuple(grants), **changed})
