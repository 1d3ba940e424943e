"""What `deploy/` holds is what a node, systemd, compose and Kubernetes would take."""

import re
import subprocess
import sysconfig
import tomllib
from configparser import ConfigParser
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml  # type: ignore[import-untyped]

from omnirelay.testing.authority import Authority
from omnirelay.testing.servers_nats import program as nats_program
from tests.cli.command import omnirelay as run

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
GRACE_S = 10
"""What a node takes to stop unless told otherwise."""


@pytest.fixture
def etc(tmp_path: Path) -> Path:
    """/etc/omnirelay with the certificates that the files name."""
    authority = Authority()
    (tmp_path / "tls").mkdir()
    (tmp_path / "tls" / "ca.crt").write_bytes(authority.pem)
    names = ["spiffe://prod.example/omnirelay/node", "node-0.example"]
    authority.issue("node", names, usage="both").write(tmp_path / "tls", "tls")
    return tmp_path


def validated(text: str, etc: Path, environment: dict[str, str] | None = None) -> str:
    """What `config validate` says of a file at /etc/omnirelay/omnirelay.toml."""
    (etc / "omnirelay.toml").write_text(text.replace("/etc/omnirelay", str(etc)))
    words = ("config", "validate", "--config", "omnirelay.toml")
    ended = run(*words, folder=etc, **(environment or {}))
    assert ended.code == 0, ended.complaint
    return ended.out


@pytest.mark.parametrize("path", sorted(DEPLOY.glob("*.toml")), ids=lambda path: path.name)
def test_the_settings_of_every_layout_are_good(path: Path, etc: Path) -> None:
    node = {"OMNIRELAY_NODE_ID": "n0", "OMNIRELAY_MESH_ADVERTISE": "streams://node-0.example:7402"}
    assert validated(path.read_text(), etc, node).startswith("good")


@pytest.mark.parametrize("path", sorted(DEPLOY.glob("*.toml")), ids=lambda path: path.name)
def test_nobody_but_the_nodes_may_pass_calls_on(path: Path) -> None:
    roles = tomllib.loads(path.read_text())["identity"]["roles"]
    peers = [role["principals"] for role in roles if role["role"] == "peer"]
    assert peers == [["spiffe://prod.example/omnirelay/*"]]


def test_the_unit_starts_the_node_and_gives_it_time_to_leave() -> None:
    unit = ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read(DEPLOY / "omnirelay.service")
    service = unit["Service"]
    program, *words = service["ExecStart"].split()
    assert program.endswith("/bin/omnirelay")
    assert words[0] == "serve"
    known = run("serve", "--help").out
    assert all(word in known for word in words if word.startswith("--"))
    assert service["KillSignal"] == "SIGTERM"
    assert int(service["TimeoutStopSec"]) > GRACE_S
    assert service["Restart"] == "always"
    assert unit["Install"]["WantedBy"]


def test_the_environment_on_the_page_makes_a_node_of_every_mesh(etc: Path) -> None:
    page = (ROOT / "docs" / "deploy.md").read_text()
    (block,) = re.findall(r"^```\n(OMNIRELAY_.*?)^```", page, re.MULTILINE | re.DOTALL)
    environment = dict(line.split("=", 1) for line in block.splitlines())
    for name in ("nats", "postgres", "objects"):
        text = (DEPLOY / f"{name}.toml").read_text()
        assert environment["OMNIRELAY_MESH_ADVERTISE"] in tomllib.loads(text)["mesh"]["peers"]
        assert validated(text, etc, environment).startswith("good")


def test_the_second_region_stands_by_over_what_the_first_one_mirrors() -> None:
    east, west = (tomllib.loads((DEPLOY / f"{name}.toml").read_text()) for name in ("east", "west"))
    assert east["mirrors"] == [west["journal"]]
    assert (west["standby"], "standby" in east) == (True, False)


def held_to_the_compose_schema(file: Path) -> subprocess.CompletedProcess[str]:
    program = Path(sysconfig.get_path("scripts")) / "check-jsonschema"
    words = [str(program), "--builtin-schema", "vendor.compose-spec", str(file)]
    return subprocess.run(words, capture_output=True, text=True, timeout=15, check=False)


def test_the_schema_of_compose_knows_every_field_of_the_compose_file(tmp_path: Path) -> None:
    checked = held_to_the_compose_schema(DEPLOY / "compose.yaml")
    assert checked.returncode == 0, checked.stdout
    wrong = (DEPLOY / "compose.yaml").read_text().replace("depends_on:", "depend_on:")
    (tmp_path / "compose.yaml").write_text(wrong)
    refused = held_to_the_compose_schema(tmp_path / "compose.yaml")
    assert refused.returncode == 1
    assert "'depend_on' was unexpected" in refused.stdout


def test_every_node_of_the_compose_file_starts_with_settings_that_are_good(etc: Path) -> None:
    compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    nodes = {name: one for name, one in compose["services"].items() if name.startswith("node")}
    assert len(nodes) == 3
    peers = {f"stream://{name}:7402" for name in nodes}
    for name, node in nodes.items():
        environment: dict[str, str] = node["environment"]
        assert all(isinstance(value, str) for value in environment.values())
        assert validated("", etc, environment).startswith("good")
        assert set(environment["OMNIRELAY_MESH_PEERS"].split(",")) == peers
        assert environment["OMNIRELAY_MESH_ADVERTISE"] == f"stream://{name}:7402"
        assert all(port.startswith("127.0.0.1:") for port in node["ports"])  # nobody is proved
        assert set(node["depends_on"]) <= compose["services"].keys()


def test_the_servers_of_the_compose_file_sync_and_keep_their_data() -> None:
    compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    text = compose["configs"]["nats"]["content"]
    assert "sync_interval: always" in text
    assert "sync_interval: always" in (DEPLOY / "nats.conf").read_text()
    servers = {name: one for name, one in compose["services"].items() if name.startswith("nats")}
    assert len({tuple(one["volumes"]) for one in servers.values()}) == len(servers) == 3
    named = {volume.partition(":")[0] for one in servers.values() for volume in one["volumes"]}
    assert named == compose["volumes"].keys()


def checked_by_nats(text: str, folder: Path) -> str:
    """What the server itself says of a configuration, in place of starting with it."""
    file = folder / "nats.conf"
    file.write_text(text)
    words = [nats_program(), "-t", "-c", str(file)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=15, check=False)
    return "good" if done.returncode == 0 else done.stderr


def test_the_servers_take_their_configuration(tmp_path: Path) -> None:
    compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    written = (DEPLOY / "nats.conf").read_text()
    assert checked_by_nats(written, tmp_path) == "good"
    assert checked_by_nats(compose["configs"]["nats"]["content"], tmp_path) == "good"
    wrong = written.replace("sync_interval", "sync_intervall")
    assert "sync_intervall" in checked_by_nats(wrong, tmp_path), "what is misspelt is refused"


def test_the_image_installs_extras_that_exist() -> None:
    text = (DEPLOY / "Dockerfile").read_text()
    found = re.search(r'"/src\[([a-z,]+)\]"', text)
    assert found is not None
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert set(found[1].split(",")) <= project["optional-dependencies"].keys()
    assert re.search(r"^USER omnirelay$", text, re.MULTILINE)


# -- Kubernetes ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def manifests() -> dict[str, Any]:
    found = yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text())
    return {f"{one['kind']}/{one['metadata']['name']}": one for one in found}


def pod(manifests: dict[str, Any]) -> Any:
    return manifests["StatefulSet/omnirelay"]["spec"]["template"]["spec"]


def test_the_pods_start_with_settings_that_are_good(manifests: dict[str, Any], etc: Path) -> None:
    text = manifests["ConfigMap/omnirelay"]["data"]["omnirelay.toml"]
    (node,) = pod(manifests)["containers"]
    name = "omnirelay-0"
    environment = {"OMNIRELAY_NODE_ID": name}
    advertised = next(one["value"] for one in node["env"] if "value" in one)
    environment["OMNIRELAY_MESH_ADVERTISE"] = advertised.replace("$(OMNIRELAY_NODE_ID)", name)
    assert validated(text, etc, environment).startswith("good")
    peers = tomllib.loads(text)["mesh"]["peers"]
    replicas = manifests["StatefulSet/omnirelay"]["spec"]["replicas"]
    assert [
        advertised.replace("$(OMNIRELAY_NODE_ID)", f"omnirelay-{n}") for n in range(replicas)
    ] == peers
    known = run("serve", "--help").out
    assert all(word in known for word in node["args"] if word.startswith("--"))


def test_selectors_ports_volumes_and_probes_fit_together(manifests: dict[str, Any]) -> None:
    labels = manifests["StatefulSet/omnirelay"]["spec"]["template"]["metadata"]["labels"]
    (node,) = pod(manifests)["containers"]
    ports = {port["name"]: port["containerPort"] for port in node["ports"]}
    for name, one in manifests.items():
        spec = one.get("spec", {})
        selector = spec.get("selector", labels)
        assert selector.get("matchLabels", selector).items() <= labels.items(), name
        if one["kind"] == "Service":
            assert all(ports[port["targetPort"]] == port["port"] for port in spec["ports"])
    stateful = manifests["StatefulSet/omnirelay"]["spec"]
    assert f"Service/{stateful['serviceName']}" in manifests
    assert {m["name"] for m in node["volumeMounts"]} == {
        v["name"] for v in pod(manifests)["volumes"]
    }
    assert node["readinessProbe"]["httpGet"]["path"] == "/readyz"
    assert node["livenessProbe"]["httpGet"]["path"] == "/healthz"
    # It only waits for the door: how long a journal takes to read is for the readiness probe.
    assert node["startupProbe"]["httpGet"] == node["livenessProbe"]["httpGet"]
    assert pod(manifests)["terminationGracePeriodSeconds"] > GRACE_S


def as_kubernetes_reads(manifest: Any) -> Any:
    """Without what its schema does not know. Raises ValidationError where something is missing or
    of another type. Any: YAML."""
    group, _, version = manifest["apiVersion"].rpartition("/")
    models = import_module(f"lightkube.models.{group.partition('.')[0] or 'core'}_{version}")
    read = msgspec.convert(manifest, getattr(models, manifest["kind"]))
    return without_nulls(msgspec.to_builtins(read))


def without_nulls(found: Any) -> Any:
    if isinstance(found, dict):
        return {name: without_nulls(one) for name, one in found.items() if one is not None}
    return [without_nulls(one) for one in found] if isinstance(found, list) else found


def test_kubernetes_schema_knows_every_field_of_the_manifests(manifests: dict[str, Any]) -> None:
    for name, manifest in manifests.items():
        assert as_kubernetes_reads(manifest) == manifest, name


def test_what_kubernetes_schema_does_not_allow_is_noticed(manifests: dict[str, Any]) -> None:
    text = yaml.safe_dump(manifests["StatefulSet/omnirelay"])
    misspelt = yaml.safe_load(text.replace("periodSeconds", "periodSecond"))
    assert as_kubernetes_reads(misspelt) != misspelt
    for good, bad in (("replicas: 3", "replicas: three"), ("  template:", "  templates:")):
        assert good in text
        with pytest.raises(msgspec.ValidationError):
            as_kubernetes_reads(yaml.safe_load(text.replace(good, bad)))


def test_the_settings_listen_where_the_manifests_say(manifests: dict[str, Any]) -> None:
    settings = tomllib.loads(manifests["ConfigMap/omnirelay"]["data"]["omnirelay.toml"])
    (node,) = pod(manifests)["containers"]
    for port in node["ports"]:
        assert settings[port["name"]] == f"0.0.0.0:{port['containerPort']}"


def test_every_file_is_named_on_the_page() -> None:
    page = (ROOT / "docs" / "deploy.md").read_text()
    for path in DEPLOY.iterdir():
        assert f"deploy/{path.name}" in page, path.name
