"""Who may do what, where. Nothing is allowed that was not granted."""

from collections.abc import Callable
from enum import StrEnum
from typing import Final

import msgspec

from omnirelay.identity.naming import Pattern, patterns
from omnirelay.model import limits
from omnirelay.model.errors import InvalidOption, PermissionDenied
from omnirelay.rpc.meta import Reply, Request
from omnirelay.rpc.procedure import Handler, Procedure

CONTROL: Final = "control"
"""The namespace the control plane stands in for grants. No queue may be called that."""
READ: Final = "read"
CHANGE: Final = "change"
PROMOTE: Final = "promote"
"""To make a region serve, or stand down."""

TAKE_OVER: Final = "takeOver"


class Role(StrEnum):
    PRODUCER = "producer"
    WORKER = "worker"
    OBSERVER = "observer"
    OPERATOR = "operator"
    PEER = "peer"


_PRODUCING: Final = frozenset({"enqueue", "enqueueBatch", "stats"})
_WORKING: Final = frozenset(
    {
        "lease",
        "leaseBatch",
        "heartbeat",
        "heartbeatBatch",
        "complete",
        "completeBatch",
        "completeAndLease",
        "fail",
        "release",
        "work",
        "stats",
    }
)
_OBSERVING: Final = frozenset({"stats", "inspect", "events", "position", "deadLetters"})
_OPERATING: Final = _OBSERVING | {"drain", "restore", "redrive", "purge"}
_REPLICATING: Final = frozenset(
    {
        "append",
        "appendPieces",
        "checkpoint",
        "describe",
        "finishSnapshot",
        "followers",
        "forget",
        "head",
        "hello",
        "open",
        "prune",
        "readPart",
        "subscribe",
        TAKE_OVER,
        "writePart",
    }
)

PERMISSIONS: Final = {
    Role.PRODUCER: _PRODUCING,
    Role.WORKER: _WORKING,
    Role.OBSERVER: _OBSERVING | {READ},
    Role.OPERATOR: _OPERATING | {READ, CHANGE, PROMOTE},
    # A peer passes on the calls of others, so it needs every verb; the control plane is no verb.
    Role.PEER: _PRODUCING | _WORKING | _OPERATING | _REPLICATING,
}


class GrantSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """`[[identity.roles]]`: these principals have this role in these namespaces."""

    role: Role
    principals: tuple[str, ...]
    """Exact, or with a `*` at the end. `*` alone means everybody proved, never `anonymous`."""
    namespaces: tuple[str, ...]
    """Exact, or with a `*` at the end; `control` is the control plane."""


class _Grant:
    __slots__ = ("_namespaces", "_permissions", "_principals")

    def __init__(self, settings: GrantSettings) -> None:
        where = f"identity.roles ({settings.role})"
        if not settings.principals or not settings.namespaces:
            raise InvalidOption(f"{where}: needs at least one principal and one namespace")
        self._permissions = PERMISSIONS[settings.role]
        self._principals = patterns(settings.principals, f"{where}: principals")
        self._namespaces = patterns(settings.namespaces, f"{where}: namespaces")

    def allows(self, principal: str, namespace: str, permission: str) -> bool:
        return (
            permission in self._permissions
            and _any(self._namespaces, namespace)
            and any(pattern.matches_principal(principal) for pattern in self._principals)
        )


def _any(listed: tuple[Pattern, ...], text: str) -> bool:
    return any(pattern.matches(text) for pattern in listed)


class Policy:
    """`is_open` is the policy of a node without identity: everybody may do everything."""

    def __init__(self, grants: tuple[GrantSettings, ...] = (), *, is_open: bool = False) -> None:
        """Raises InvalidOption for a grant that cannot be meant."""
        if len(grants) > limits.GRANTS_MAX:
            raise InvalidOption(
                f"identity.roles: {len(grants)} grants, at most {limits.GRANTS_MAX}"
            )
        self.is_open = is_open
        self._grants = tuple(_Grant(grant) for grant in grants)
        self._decided: dict[tuple[str, str, str], bool] = {}

    def allows(self, principal: str, namespace: str, permission: str) -> bool:
        """`permission` is a verb; on the control plane `read`, `change` or `promote`."""
        if self.is_open:
            return True
        asked = (principal, namespace, permission)
        decided = self._decided.get(asked)
        if decided is None:
            decided = any(grant.allows(*asked) for grant in self._grants)
            if len(self._decided) >= limits.DECISIONS_MAX:
                self._decided.clear()
            self._decided[asked] = decided
        return decided

    def is_peer(self, principal: str, namespace: str) -> bool:
        """Whether it is another node: nobody else may ask for a hand-over."""
        return self.allows(principal, namespace, TAKE_OVER)

    def check(self, principal: str, namespace: str, permission: str) -> None:
        if not self.allows(principal, namespace, permission):
            raise PermissionDenied(f"{principal} may not {permission} in {namespace}")


OnDenied = Callable[[Request, Procedure, PermissionDenied], None]


class Authorize:
    """Asks by what was found in the registry, not by what a header says the call is about."""

    is_settled = True

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self.on_denied: OnDenied = lambda request, procedure, error: None
        """Told before the caller is."""

    def is_idle(self, request: Request) -> bool:
        return self._policy.is_open

    async def __call__(self, request: Request, procedure: Procedure, next_: Handler) -> Reply:
        try:
            self._policy.check(request.meta.principal, procedure.namespace, procedure.verb)
        except PermissionDenied as error:
            self.on_denied(request, procedure, error)
            raise
        return await next_(request)
