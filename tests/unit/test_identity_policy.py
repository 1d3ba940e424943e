"""Roles by namespace; the default is no."""

import pytest

from omnirelay.identity.policy import (
    CHANGE,
    CONTROL,
    PERMISSIONS,
    READ,
    Authorize,
    GrantSettings,
    Policy,
    Role,
)
from omnirelay.identity.settings import read_settings
from omnirelay.model.errors import InvalidOption, PermissionDenied
from omnirelay.model.items import ANONYMOUS
from omnirelay.rpc.dispatcher import Dispatcher
from omnirelay.rpc.meta import Reply, Request, RequestMeta, Response
from omnirelay.rpc.procedure import Procedure, Registry

# CONTRACT §1, and who may: p producer, w worker, b observer, o operator. A peer may all of them.
VERBS = {
    "enqueue": "p",
    "enqueueBatch": "p",
    "lease": "w",
    "leaseBatch": "w",
    "heartbeat": "w",
    "heartbeatBatch": "w",
    "complete": "w",
    "completeBatch": "w",
    "completeAndLease": "w",
    "fail": "w",
    "release": "w",
    "work": "w",
    "drain": "o",
    "restore": "o",
    "stats": "pwbo",
    "inspect": "bo",
    "events": "bo",
    "deadLetters": "bo",
    "redrive": "o",
    "purge": "o",
    "position": "bo",
}
LETTERS = {Role.PRODUCER: "p", Role.WORKER: "w", Role.OBSERVER: "b", Role.OPERATOR: "o"}


def grant(role: Role, principal: str = "alice", namespace: str = "users") -> GrantSettings:
    return GrantSettings(role=role, principals=(principal,), namespaces=(namespace,))


@pytest.mark.parametrize("role", list(Role))
@pytest.mark.parametrize("verb", VERBS)
def test_a_role_may_its_verbs_in_its_namespace_and_no_others(role: Role, verb: str) -> None:
    policy = Policy((grant(role),))
    may = role is Role.PEER or LETTERS[role] in VERBS[verb]
    assert policy.allows("alice", "users", verb) is may
    assert not policy.allows("alice", "orders", verb)
    assert not policy.allows("users", "alice", verb)
    assert not policy.allows("bob", "users", verb)
    assert not policy.allows(ANONYMOUS, "users", verb)


@pytest.mark.parametrize("role", list(Role))
def test_the_control_plane_is_read_by_observers_and_changed_by_operators(role: Role) -> None:
    policy = Policy((grant(role, namespace=CONTROL),))
    assert policy.allows("alice", CONTROL, READ) is (role in (Role.OBSERVER, Role.OPERATOR))
    assert policy.allows("alice", CONTROL, CHANGE) is (role is Role.OPERATOR)


def test_replication_is_for_peers() -> None:
    for role, permissions in PERMISSIONS.items():
        assert ({"append", "subscribe", "checkpoint"} <= permissions) is (role is Role.PEER)


def test_a_verb_nobody_was_granted_is_denied_to_all() -> None:
    policy = Policy(tuple(grant(role, "*", "*") for role in Role))
    assert not policy.allows("alice", "users", "dropEverything")


@pytest.mark.parametrize(
    ("pattern", "principal", "may"),
    [
        ("spiffe://prod/ingest/*", "spiffe://prod/ingest/7", True),
        ("spiffe://prod/ingest/*", "spiffe://prod/ingest", False),
        ("spiffe://prod/ingest/*", "spiffe://prod.evil/ingest/7", False),
        ("alice", "alice", True),
        ("alice", "alice2", False),
        ("alice", "Alice", False),
        ("*", "anyone", True),
        ("*", ANONYMOUS, False),
        ("anon*", ANONYMOUS, False),
        (ANONYMOUS, ANONYMOUS, True),
    ],
)
def test_principals_are_named_exactly_or_by_how_they_begin(
    pattern: str, principal: str, may: bool
) -> None:
    policy = Policy((grant(Role.PRODUCER, pattern),))
    assert policy.allows(principal, "users", "enqueue") is may


def test_namespaces_may_be_named_by_how_they_begin() -> None:
    policy = Policy((grant(Role.WORKER, namespace="resourcelease.*"),))
    assert policy.allows("alice", "resourcelease.users", "lease")
    assert not policy.allows("alice", "resourcelease", "lease")


def test_what_was_decided_is_remembered_only_up_to_a_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("omnirelay.model.limits.DECISIONS_MAX", 10)
    policy = Policy((grant(Role.WORKER),))
    for number in range(100):
        assert not policy.allows(f"stranger {number}", "users", "lease")
    assert len(policy._decided) <= 10
    assert policy.allows("alice", "users", "lease")


async def test_a_call_is_judged_by_the_procedure_that_was_found_and_refused_before_it_runs() -> (
    None
):
    ran: list[str] = []

    async def run(request: Request) -> Reply:
        ran.append(request.meta.procedure)
        return Response()

    registry = Registry()
    for name in ("users::purge", "orders::purge"):
        registry.add(Procedure(name=name, handler=run))
    dispatcher = Dispatcher(registry, [Authorize(Policy((grant(Role.OPERATOR),)))])

    async def purge(namespace: str, principal: str) -> None:
        # The headers lie about the namespace; nobody asks them.
        meta = RequestMeta(
            procedure=f"{namespace}::purge",
            transport="memory",
            principal=principal,
            shard_key="users",
            headers={"rpc-namespace": "users", "rpc-procedure": "users::purge"},
        )
        await dispatcher(Request(meta))

    await purge("users", "alice")
    for namespace, principal in (("orders", "alice"), ("users", "bob")):
        with pytest.raises(PermissionDenied, match=f"{principal} may not purge in {namespace}"):
            await purge(namespace, principal)
    assert ran == ["users::purge"]


@pytest.mark.parametrize(
    ("roles", "names"),
    [
        ([{"role": "king", "principals": ["a"], "namespaces": ["b"]}], "king"),
        ([{"role": "worker", "principals": ["a"]}], "namespaces"),
        ([{"role": "worker", "principals": ["a"], "namespaces": ["b"], "if": 1}], "if"),
        ([{"role": "worker", "principals": "a", "namespaces": ["b"]}], "principals"),
    ],
)
def test_a_grant_that_is_misspelt_is_refused_by_name(roles: list[object], names: str) -> None:
    with pytest.raises(InvalidOption, match=names):
        read_settings({"roles": roles})


@pytest.mark.parametrize("written", ["", " ", "a*b", "**", "*a"])
def test_a_pattern_that_would_match_what_nobody_meant_is_refused(written: str) -> None:
    with pytest.raises(InvalidOption, match="principals"):
        Policy((grant(Role.WORKER, written),))
    with pytest.raises(InvalidOption, match="namespaces"):
        Policy((grant(Role.WORKER, namespace=written),))


def test_a_grant_to_nobody_or_nowhere_is_refused() -> None:
    for principals, namespaces in (((), ("a",)), (("a",), ())):
        with pytest.raises(InvalidOption, match="at least one"):
            Policy((GrantSettings(role=Role.PEER, principals=principals, namespaces=namespaces),))
