"""`omnirelay config`: what counts, where it comes from, what is wrong with it."""

from pathlib import Path

import msgspec
import pytest

from tests.cli.command import omnirelay as run

pytestmark = pytest.mark.timeout(60)


def shown(folder: Path, *words: str, **environment: str) -> dict[str, tuple[object, str]]:
    ended = run("config", "show", "--json", *words, folder=folder, **environment)
    assert ended.code == 0, ended.err
    rows = msgspec.json.decode(ended.out)["settings"]
    return {row["key"]: (row["value"], row["source"]) for row in rows}


def test_flag_then_environment_then_file_then_default(tmp_path: Path) -> None:
    (tmp_path / "omnirelay.toml").write_text('http = "h:1"\ngrpc = "g:1"\nstream = "s:1"\n')
    found = shown(tmp_path, "--set", "http=h:3", OMNIRELAY_HTTP="h:2", OMNIRELAY_GRPC="g:2")
    assert found["http"] == ("h:3", "flag")
    assert found["grpc"] == ("g:2", "env OMNIRELAY_GRPC")
    assert found["stream"] == ("s:1", "omnirelay.toml")
    assert found["data"] == ("./.omnirelay", "default")


def test_flags_of_single_commands_are_shown_with_their_source(tmp_path: Path) -> None:
    (tmp_path / "omnirelay.toml").write_text(
        '[command.serve]\nhttp = "h:9"\ngrpc = "g:9"\n'
        '[command.stats]\nurl = "http://n:1"\ntoken = "hidden-word"\n'
        "[command.deadletters.list]\nmax_items = 5\n"
    )
    found = shown(tmp_path, OMNIRELAY_GRPC="g:2", OMNIRELAY_ENQUEUE_PRIORITY="4")
    flags = {key: row for key, row in found.items() if key.startswith("command.")}
    assert flags == {
        "command.serve.http": ("h:9", "omnirelay.toml"),
        "command.serve.grpc": ("g:2", "env OMNIRELAY_GRPC"),
        "command.stats.url": ("http://n:1", "omnirelay.toml"),
        "command.stats.token": ("***", "omnirelay.toml"),
        "command.deadletters.list.max_items": (5, "omnirelay.toml"),
        "command.enqueue.priority": ("4", "env OMNIRELAY_ENQUEUE_PRIORITY"),
    }


def test_a_good_file_is_called_good(tmp_path: Path) -> None:
    (tmp_path / "own.toml").write_text(
        'journal = "memory:"\n[command.enqueue]\npriority = 3\n[command.deadletters.list]\n'
        'max_items = 5\n[[identity.roles]]\nrole = "worker"\nprincipals = ["a"]\n'
        'namespaces = ["*"]\n[identity]\nanonymous = true\n'
    )
    ended = run("config", "validate", folder=tmp_path, OMNIRELAY_CONFIG="own.toml")
    assert ended.out == "good: own.toml\n", ended.err
    assert run("config", "validate", "--json", folder=tmp_path).json() == {"ok": True, "file": None}


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("http = ", "not TOML"),
        ('htp = "h:1"', "did you mean 'http'?"),
        ("[limits]\nbursts = 1", "did you mean 'limits.burst'?"),
        ('[limits]\nburst = "1"', "limits.burst: expected `int`"),
        ("limits = 5", "limits is a table"),
        ("[namespaces.x.options]\ncapacity = 0", "namespaces.x: capacity is 0"),
        ("[namespaces.x.options]\ncapacty = 1", "namespaces.x.options.capacity"),
        ('[identity.tls]\ncert_file = "a"', "identity.tls: object missing"),
        ('[[identity.roles]]\nrol = "worker"', "identity.roles[1].role"),
        ("[command.enqueue]\nprio = 1", "did you mean 'command.enqueue.priority'?"),
        ("[command.enqeue]\npriority = 1", "did you mean 'command.enqueue'?"),
        ("[client]\nurl = 5", "client.url: expected `str`"),
        ('[client]\ntoken_file = "none"\n', "token_file is 'none'"),
        ('journal = "ftp://x"', "ftp://x"),
    ],
)
def test_a_bad_file_is_refused_with_its_name_and_key(tmp_path: Path, text: str, word: str) -> None:
    (tmp_path / "omnirelay.toml").write_text(text)
    ended = run("config", "validate", folder=tmp_path)
    assert ended.code == 2, ended.out
    assert word in ended.complaint


def test_flags_of_a_command_may_stand_in_the_file(tmp_path: Path) -> None:
    (tmp_path / "omnirelay.toml").write_text("[command.config.show]\njson = true\n")
    assert run("config", "show", folder=tmp_path).json()["file"] == "omnirelay.toml"


def test_a_broken_file_keeps_no_command_from_running_that_does_not_use_it(tmp_path: Path) -> None:
    (tmp_path / "omnirelay.toml").write_text("[[")
    assert run("version", folder=tmp_path).code == 0
    assert run("stats", folder=tmp_path).code == 2
