"""`audit`, `replay`, `lineage` of journals that must be named, and of a node that wants a token."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from typer.testing import CliRunner, Result

import omnirelay
from omnirelay.cli.pipeline import app
from omnirelay.identity.issuer import IssuerSettings
from omnirelay.identity.policy import GrantSettings, Role
from omnirelay.identity.settings import IdentitySettings
from omnirelay.model.errors import InvalidOption, OmniRelayError
from omnirelay.node.settings import NodeSettings
from omnirelay.pipeline.archive import archive_journal
from omnirelay.pipeline.audit_evidence import evidence_of_places
from omnirelay.testing.issuers import AUDIENCE, Signer
from tests.wire.node_apart import NodeApart

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.timeout(200), pytest.mark.usefixtures("spark")]


def run(*words: object) -> Result:
    return CliRunner().invoke(app, [*map(str, words)])


def lines(result: Result) -> list[Any]:
    """Any: what a command prints as JSON."""
    assert result.exit_code == 0, result.output or result.exception
    return [msgspec.json.decode(line) for line in result.stdout.splitlines()]


def fill(url: str, **also: Any) -> None:
    with omnirelay.connect_sync(url, **also) as relay:
        relay.enqueue("table", "orders")
        relay.enqueue("table", "orders")
        with relay.lease():
            pass


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Two journals, neither of them the one that is read if none is named."""
    url = f"file://{tmp_path_factory.mktemp('store')}"
    for namespace in ("north", "south"):
        fill(url, namespace=namespace)
    return url


def test_one_shard_of_a_store_is_rebuilt_and_told_as_lineage(store: str) -> None:
    for flag in ("--shard", "--shards"):
        ((state,),) = lines(run("replay", "--from", store, flag, "south", "--json"))
        assert (state["shard"], state["pending"], state["active"]) == ("south", 1, 0)
    told = lines(run("lineage", "--from", store, "--shards", "south", "--to", "console"))
    assert [one["eventType"] for one in told] == ["START", "COMPLETE"]
    assert {one["job"]["namespace"] for one in told} == {"omnirelay/south"}


def test_an_audit_looks_at_the_shards_that_are_named_and_misses_no_others(
    spark: "SparkSession", store: str, tmp_path: Path
) -> None:
    named = evidence_of_places(spark, [store], "north,south").events
    assert {row.shard for row in named.select("shard").collect()} == {"north", "south"}
    url = f"sqlite:///{tmp_path}/leases.db"
    for namespace in ("north", "south"):
        fill(url, namespace=namespace)
    archive_journal(url, tmp_path / "archive", has_tail=True)
    for place in (url, str(tmp_path / "archive")):
        evidence = evidence_of_places(spark, [place], "south")
        assert {row.shard for row in evidence.events.select("shard").collect()} == {"south"}
        assert set(evidence.acknowledged) == {"south"}
    with pytest.raises(InvalidOption, match="has no 'west'; it has: north, south"):
        evidence_of_places(spark, [str(tmp_path / "archive")], "west")


def test_shards_are_named_of_journals_only(tmp_path: Path) -> None:
    assert run("audit", "--tables", tmp_path, "--shards", "a").exit_code == 2
    for words in (("replay",), ("lineage", "--to", "console")):
        ended = run(*words, "--tables", tmp_path, "--shards", "a")
        assert isinstance(ended.exception, InvalidOption)
        assert "--shards goes with --from" in str(ended.exception)


class GuardedNode(NodeApart):
    """Lets nobody in without a token."""

    def __init__(self, signer: Signer, keys: Path) -> None:
        super().__init__()
        keys.write_bytes(signer.key_set())
        roles = tuple(
            GrantSettings(role=role, principals=("*",), namespaces=("*",))
            for role in (Role.PRODUCER, Role.WORKER, Role.OBSERVER)
        )
        issuer = IssuerSettings(issuer=signer.name, audience=AUDIENCE, jwks_file=str(keys))
        self._settings = NodeSettings(
            http="127.0.0.1:0",
            grpc="",
            stream="",
            journal="memory:",
            node_id="apart",
            grace_s=0.2,
            namespace=("north", "south"),
            identity=IdentitySettings(issuers=(issuer,), roles=roles),
        )


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[tuple[str, str]]:
    """Its address, and a token that it takes."""
    signer = Signer("https://issuer.example")
    with GuardedNode(signer, tmp_path / "keys.json") as node:
        yield node.urls["http"], signer.token()


def test_the_shards_of_a_node_that_wants_a_token_are_audited_and_told_as_lineage(
    guarded: tuple[str, str],
) -> None:
    url, token = guarded
    for namespace in ("north", "south"):
        fill(url, namespace=namespace, token=token)
    words = ("--from", url, "--shards", "north,south")
    refused = run("audit", *words)
    assert isinstance(refused.exception, OmniRelayError)
    (said,) = lines(run("audit", *words, "--token", token, "--json"))
    assert [one["shard"] for one in said["audit"]["shards"]] == ["north", "south"]
    assert said["ok"]
    told = lines(run("lineage", *words, "--node-token", token, "--to", "console"))
    assert [one["eventType"] for one in told] == ["START", "COMPLETE"] * 2
