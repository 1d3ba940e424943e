"""Every command of the page about backups is run as it stands, against the real products."""

import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

import omnirelay
from omnirelay.cli.app import app
from tests.servers.postgres_storage import fresh_schema
from tests.servers.redis_storage import fresh_prefix

if TYPE_CHECKING:
    from omnirelay.testing.servers_hub import HubHost
    from omnirelay.testing.servers_nats import NatsServers
    from omnirelay.testing.servers_objects import ObjectServer
    from omnirelay.testing.servers_postgres import PostgresServer
    from omnirelay.testing.servers_valkey import ValkeyServer

PAGE = Path(__file__).parents[2] / "docs" / "backup.md"
SHELL = re.compile(r"^```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)


def commands() -> list[list[str]]:
    lines = [line for block in SHELL.findall(PAGE.read_text()) for line in block.splitlines()]
    return [shlex.split(line, comments=True) for line in lines]


@pytest.fixture
def places(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> dict[str, str]:
    """Where each address of the page leads here."""
    postgres: PostgresServer = request.getfixturevalue("postgres")
    valkey: ValkeyServer = request.getfixturevalue("valkey")
    nats_one: NatsServers = request.getfixturevalue("nats_one")
    s3: ObjectServer = request.getfixturevalue("s3")
    gs: ObjectServer = request.getfixturevalue("gs")
    az: ObjectServer = request.getfixturevalue("az")
    hubs: HubHost = request.getfixturevalue("hubs")
    for name, value in {**s3.environment, **gs.environment, **az.environment}.items():
        monkeypatch.setenv(name, value)
    word = fresh_schema()
    return {
        "postgres://omni@db.example/omni?schema=leases": postgres.url(f"{word}_a"),
        "postgres://omni@db.example/omni?schema=restored": postgres.url(f"{word}_b"),
        "redis://cache.example:6379/0?prefix=leases": valkey.url(fresh_prefix()),
        "redis://cache.example:6379/0?prefix=restored": valkey.url(fresh_prefix()),
        "nats://bus.example:4222/LEASES": nats_one.url(f"A{word}".upper()),
        "nats://bus.example:4222/RESTORED": nats_one.url(f"B{word}".upper()),
        "file:///srv/journals": f"file://{tmp_path}/srv/journals",
        "s3://journals/leases": s3.url(f"{word}-a"),
        "s3://journals/restored": s3.url(f"{word}-b"),
        "gs://journals/leases": gs.url(f"{word}-a"),
        "gs://journals/restored": gs.url(f"{word}-b"),
        "az://journals/leases": az.url(f"{word}-a"),
        "az://journals/restored": az.url(f"{word}-b"),
        "file:///srv/restored": f"file://{tmp_path}/srv/restored",
        "hub://hub.example:7401": hubs.fresh(),
        "hub://other.example:7401": hubs.fresh(),
    }


@pytest.mark.timeout(120)
def test_every_command_of_the_page_does_its_job(
    places: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with omnirelay.connect_sync("sqlite:///leases.db") as relay:
        for number in range(30):
            relay.enqueue("table", f"t{number}")
    named = {verb for _, _, verb, *_ in commands()}
    assert named == {"backup", "verify", "restore", "export", "migrate"}
    for words in commands():
        assert words[0] == "omnirelay"
        told = [places.get(word, word) for word in words[1:]]
        assert not any(".example" in word or "/srv/" in word[:12] for word in told), words
        done = CliRunner().invoke(app, told)
        assert done.exit_code == 0, f"{' '.join(words)}\n{done.output}{done.exception}"
    for name in ("restored.db", "home-again.db"):
        with omnirelay.connect_sync(f"sqlite:///{name}") as relay:
            assert relay.stats().pending_count == 30
    assert len((tmp_path / "events.ndjson").read_text().splitlines()) == 31
