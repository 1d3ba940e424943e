"""Every command of the pages about meshes and regions is run as it stands, against real nodes."""

import re
import shlex
import shutil
import subprocess
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import urlopen

import pytest

import omnirelay
from omnirelay.cli.free_ports import LOOPBACK, free_ports
from omnirelay.testing.authority import Authority
from omnirelay.testing.servers_postgres import PostgresServer
from tests.cli.nodes import running
from tests.servers.postgres_storage import fresh_schema

ROOT = Path(__file__).parents[2]
SHELL = re.compile(r"^```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)
SPIFFE = "spiffe://prod.example/omnirelay/node"


def commands(page: str, *begin: str) -> list[list[str]]:
    """Those that begin with these words."""
    text = (ROOT / "docs" / page).read_text().replace("\\\n", " ")
    lines = [line for block in SHELL.findall(text) for line in block.splitlines()]
    words = [shlex.split(line, comments=True) for line in lines]
    return [one for one in words if tuple(one[: len(begin)]) == begin]


def test_the_pages_have_no_command_that_no_test_here_runs() -> None:
    verbs = {
        page: [" ".join(words[:2]) for words in commands(page)]
        for page in ("multi-region.md", "cluster.md", "deploy.md")
    }
    assert verbs == {
        "multi-region.md": ["omnirelay serve", *["omnirelay promote"] * 3],
        "cluster.md": [
            *("make demo-cluster", "omnirelay serve", "omnirelay shards", "omnirelay peers"),
            "curl -s",
        ],
        "deploy.md": [],
    }


@pytest.mark.timeout(60)
def test_a_region_is_set_up_and_promoted_as_the_page_says(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    mirror = postgres.url(fresh_schema())
    ((_, _, *flags),) = commands("multi-region.md", "omnirelay", "serve")
    places = {
        "/var/lib/omnirelay": str(tmp_path / "west"),
        "postgres://omni@west.example/omni?schema=leases": mirror,
    }
    with (
        running(tmp_path, "--data", "east", "--mirror", mirror) as east,
        running(tmp_path, *(places.get(flag, flag) for flag in flags)) as west,
    ):
        with omnirelay.connect_sync(east.urls["http"]) as relay:
            relay.enqueue("table", "orders")
        places |= {
            "http://west.example:7400": west.urls["http"],
            "http://east.example:7400": east.urls["http"],
        }
        written = commands("multi-region.md", "omnirelay", "promote")
        for _, *words in sorted(written, key=lambda words: "--fence-old" not in words):
            done = west(*(places.get(word, word) for word in words))
            assert done.code == 0, f"{words}: {done.err}"
        with omnirelay.connect_sync(west.urls["http"]) as relay:
            relay.enqueue("table", "it serves")
            assert relay.stats().pending_count == 2


@pytest.mark.timeout(60)
def test_a_node_of_a_mesh_starts_as_the_page_says(postgres: PostgresServer, tmp_path: Path) -> None:
    ((_, _, *flags),) = commands("cluster.md", "omnirelay", "serve")
    a, b, c = free_ports(3)
    places = {
        "/etc/omnirelay/omnirelay.toml": str(with_identity(tmp_path)),
        "postgres://omnirelay@db/leases?schema=leases": postgres.url(fresh_schema()),
        "10.0.0.1:7402": f"{LOOPBACK}:{a}",
        "streams://a.example:7402": f"streams://localhost:{a}",
        "streams://b.example:7402": f"streams://localhost:{b}",
        "streams://c.example:7402": f"streams://localhost:{c}",
    }
    told = [places.get(flag, flag) for flag in flags]
    assert not any(".example" in word or "db/" in word for word in told)
    with running(tmp_path, *told) as node:
        assert node.urls["stream"].startswith("streams://")


def with_identity(folder: Path) -> Path:
    """What the page says that the file has, with certificates that are good here."""
    authority = Authority()
    (folder / "tls").mkdir()
    (folder / "tls" / "ca.crt").write_bytes(authority.pem)
    authority.issue("node", [SPIFFE, "localhost"], usage="both").write(folder / "tls", "tls")
    text = (ROOT / "deploy" / "postgres.toml").read_text()
    own = text[text.index("[identity.tls]") :].replace("/etc/omnirelay", str(folder))
    path = folder / "omnirelay.toml"
    path.write_text(own)
    return path


def test_who_is_who_is_answered_as_the_page_says(tmp_path: Path) -> None:
    with running(tmp_path, "--journal", f"file://{tmp_path}/journal", "--node-id", "a") as node:
        for verb in ("shards", "peers"):
            ((_, *words),) = commands("cluster.md", "omnirelay", verb)
            assert node(*words).code == 0
        assert "owner" in node("shards").out
        ((*_, asked),) = commands("cluster.md", "curl")
        place = urlsplit(node.urls["http"]).netloc
        with urlopen(f"http://{asked}".replace("localhost:7400", place), timeout=10) as answer:
            assert answer.read().startswith(b'{"shards":[')


def test_the_demo_that_the_page_names_is_the_one_that_is_tested() -> None:
    ((program, target),) = commands("cluster.md", "make")
    words = [shutil.which(program) or program, "-n", target]
    said = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True, timeout=10)
    assert "omnirelay demo --cluster" in said.stdout
