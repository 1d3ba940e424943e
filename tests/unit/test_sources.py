"""Settings from flag, environment and file: kinds, texts, secrets."""

from pathlib import Path

import pytest

from omnirelay.node.keys import BadSetting, client_leaves, node_leaves
from omnirelay.node.sources import load, load_client


def test_every_key_of_a_node_has_a_variable_of_its_own() -> None:
    variables = [leaf.variable for leaf in node_leaves().values()]
    assert len(set(variables)) == len(variables)
    assert node_leaves()["identity.tls.cert_file"].variable == "OMNIRELAY_IDENTITY_TLS_CERT_FILE"
    assert client_leaves()["client.url"].variable == "OMNIRELAY_URL"


def test_texts_become_what_their_key_holds() -> None:
    environ = {
        "OMNIRELAY_GRACE_S": "2.5",
        "OMNIRELAY_INSECURE": "Yes",
        "OMNIRELAY_NAMESPACE": "a, b",
        "OMNIRELAY_LIMITS_BURST": "7",
        "OMNIRELAY_GRPC": "",
        "OMNIRELAY_NAMESPACES": '{"x": {"options": {"capacity": 9}}}',
    }
    settings = load({}, environ).node()
    assert (settings.grace_s, settings.insecure, settings.grpc) == (2.5, True, None)
    assert settings.limits.burst == 7
    assert set(settings.all_namespaces()) == {"a", "b", "x"}
    assert settings.namespaces["x"].options.capacity == 9


@pytest.mark.parametrize(
    ("variable", "text"),
    [
        ("OMNIRELAY_GRACE_S", "soon"),
        ("OMNIRELAY_INSECURE", "maybe"),
        ("OMNIRELAY_LIMITS_BURST", "1.5"),
        ("OMNIRELAY_NAMESPACES", "{"),
        ("OMNIRELAY_NAMESPACES", '{"x": {"options": {"capacity": 0}}}'),
        ("OMNIRELAY_GRACE_S", ""),
    ],
)
def test_a_text_that_cannot_be_meant_is_refused_with_its_variable(variable: str, text: str) -> None:
    with pytest.raises(BadSetting, match=variable):
        load({}, {variable: text})


def test_the_token_said_closest_to_the_command_counts(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("from-file\n")
    toml = tmp_path / "omnirelay.toml"
    toml.write_text('[client]\ntoken = "in-toml"\n')
    by_variable = {"OMNIRELAY_TOKEN_FILE": str(file)}
    assert load_client({}, by_variable, config=str(toml)).client().token == "from-file"
    flagged = {"client.token": "flag"}
    assert load_client(flagged, by_variable, config=str(toml)).client().token == "flag"
    both = {"OMNIRELAY_TOKEN": "a", **by_variable}
    with pytest.raises(BadSetting, match="choose one"):
        load_client({}, both).client()


@pytest.mark.parametrize("token", ["two\nlines", "café", "\x00"])
def test_a_token_no_header_can_carry_is_refused_unseen(token: str) -> None:
    with pytest.raises(BadSetting) as refused:
        load_client({"client.token": token}, {}).client()
    assert token not in str(refused.value)


def test_passwords_in_addresses_are_masked() -> None:
    sources = load({"journal": "postgres://ann:hunter2@h/db"}, {})
    assert sources.settings["journal"].shown() == "postgres://ann:***@h/db"
    spaces = '{"x": {"journal": "postgres://ann:hunter2@h/db"}}'
    assert "hunter2" not in str(load({"namespaces": spaces}, {}).settings["namespaces"].shown())
