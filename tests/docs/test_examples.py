"""Every example runs as its first lines say, and does what it says."""

import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

import pytest

import omnirelay
from omnirelay.model.errors import PermissionDenied
from omnirelay.testing.authority import Authority
from tests.cli.command import omnirelay as run
from tests.cli.nodes import Running, running

EXAMPLES = Path(__file__).parents[2] / "examples"
WITHIN_S = 18


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running(tmp_path_factory.mktemp("node")) as started:
        yield started


def example(name: str, *words: str, folder: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", str(EXAMPLES / name), *words],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


def test_every_example_is_in_the_table_and_tried_here() -> None:
    table = (EXAMPLES / "README.md").read_text()
    here = Path(__file__).read_text()
    for path in EXAMPLES.iterdir():
        if path.name != "README.md" and path.is_file():
            assert f"[{path.name}]({path.name})" in table
            assert f'"{path.name}"' in here


def test_an_embedded_queue_retries_and_survives_its_restart(tmp_path: Path) -> None:
    said = example("embedded_queue.py", folder=tmp_path)
    assert "duplicate=True" in said
    assert "attempt 2 has fence 6, after ErrorInfo(message='RuntimeError: the catalog" in said
    kinds = re.findall(r"^ +\d+ (\w+)", said, re.MULTILINE)
    assert kinds == [
        *("EpochStarted", "Enqueue", "LeaseGranted", "Failed"),
        *("EpochStarted", "LeaseGranted", "Completed"),
    ]


def test_a_fenced_table_refuses_who_comes_too_late(tmp_path: Path) -> None:
    said = example("fenced_write.py", folder=tmp_path)
    assert "writes: True" in said
    assert "slow writes: False" in said
    assert "slow completes: refused" in said
    assert said.endswith("the books say: by quick\n")


def test_an_own_procedure_answers_over_both_wires(tmp_path: Path) -> None:
    said = example("own_procedure.py", folder=tmp_path)
    assert said.count("Answer(longest='journal')") == 2
    assert said.count("refused: there is no longest of no words") == 2
    assert "words::longest over http" in said
    assert "words::longest over stream" in said


@pytest.mark.parametrize("wire", ["embedded", "http", "grpc", "stream"])
def test_threads_drain_a_queue(node: Running, wire: str, tmp_path: Path) -> None:
    address = () if wire == "embedded" else (node.urls[wire],)
    said = example("sync_client.py", *address, folder=tmp_path)
    assert said == "40 enqueued\n40 done by 4 threads\n0 still held\n"


@pytest.mark.parametrize("wire", ["http", "grpc", "stream"])
def test_a_worker_leaves_cleanly_when_it_is_asked_to(wire: str, tmp_path: Path) -> None:
    with running(tmp_path) as node:
        script = str(EXAMPLES / "producer_and_worker.py")
        with subprocess.Popen(
            [sys.executable, "-W", "error", script, node.urls[wire]],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as worker:
            watchdog = threading.Timer(WITHIN_S, worker.kill)
            watchdog.start()
            assert worker.stdout is not None
            said: list[str] = []
            # The one that failed at first comes last.
            while not said or not said[-1].startswith("returns: attempt 2"):
                said.append(worker.stdout.readline())
                assert said[-1], worker.communicate()
            worker.send_signal(signal.SIGTERM)
            rest, complaints = worker.communicate()
            watchdog.cancel()
    assert (worker.returncode, complaints) == (0, "")
    assert [line for line in said if "item" in line] == [
        "orders: item 1, new\n",
        "returns: item 2, new\n",
        "clicks: item 3, new\n",
    ]
    assert rest == "stopped: 3 completed, 1 failed, 0 lost\n"


def test_curl_sees_a_whole_life(node: Running, tmp_path: Path) -> None:
    script = EXAMPLES / "curl.sh"
    if shutil.which("curl") is None:
        pytest.skip("there is no curl here; the next test sends the same calls without it")
    done = subprocess.run(
        ["sh", str(script), node.urls["http"]],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    statuses = re.findall(r" (\d{3})$", done.stdout, re.MULTILINE)
    assert statuses == ["200", "200", "200", "200", "200", "412", "200", "200"]
    assert '"duplicate":true' in done.stdout
    assert "error.taskqueue.lease_inactive" in done.stdout


def test_the_calls_of_the_curl_example_are_plain_http(node: Running) -> None:
    """Its verbs and bodies as they stand in the script, sent by Python's own client."""
    script = (EXAMPLES / "curl.sh").read_text()
    verbs = re.findall(r"ask (\w+) ", script)
    lease = re.search(r"ask lease '(.*)'\)", script)
    assert lease is not None
    item = '{"payload":{"resourceType":"curl","resourceId":"sales.orders"}}'
    wire = HTTPConnection(urlsplit(node.urls["http"]).netloc, timeout=WITHIN_S)
    token, statuses = "", []
    for verb in verbs:
        body = {"enqueue": item, "lease": lease[1]}.get(verb, f'{{"ownershipToken":{token}}}')
        wire.request("POST", f"/v1/resourcelease/{verb}", body)
        answer = wire.getresponse()
        said = answer.read().decode()
        statuses.append((verb, answer.status))
        if verb == "lease":
            found = re.search(r'"ownershipToken":({[^}]*})', said)
            assert found is not None, said
            token = found[1]
    wire.close()
    assert [verb for verb, status in statuses if status != 200] == ["complete"]
    assert ("complete", 412) in statuses
    assert statuses[-1] == ("complete", 200)


# -- identity -----------------------------------------------------------------------------------


@pytest.fixture
def secured(tmp_path: Path) -> Path:
    """A folder with the example's file and the certificates it names, and those of two clients."""
    shutil.copy(EXAMPLES / "tls_and_roles.toml", tmp_path)
    folder = tmp_path / "tls"
    folder.mkdir()
    authority = Authority()
    (folder / "clients.pem").write_bytes(authority.pem)
    authority.issue("node", ["127.0.0.1", "localhost"], usage="server").write(folder, "node")
    for name in ("ingest/orders", "compactor", "stranger"):
        issued = authority.issue("", [f"spiffe://prod.example/{name}"], usage="client")
        issued.write(folder, name.partition("/")[0])
    return tmp_path


def test_the_file_with_identity_is_good(secured: Path) -> None:
    ended = run("config", "validate", "--config", "tls_and_roles.toml", folder=secured)
    assert (ended.code, ended.err) == (0, "")
    assert ended.out == "good: tls_and_roles.toml\n"


def test_without_its_certificates_the_file_is_refused(tmp_path: Path) -> None:
    shutil.copy(EXAMPLES / "tls_and_roles.toml", tmp_path)
    ended = run("config", "validate", "--config", "tls_and_roles.toml", folder=tmp_path)
    assert ended.code == 2
    assert "tls/node.crt" in ended.complaint


async def test_a_node_with_that_file_gives_each_client_its_role_and_no_more(secured: Path) -> None:
    with running(secured, "--config", "tls_and_roles.toml", "--data", "data") as node:
        url = node.urls["http"]
        assert url.startswith("https://")

        def client(name: str) -> omnirelay.Tls:
            tls = secured / "tls"
            return omnirelay.Tls(
                ca_file=str(tls / "clients.pem"),
                cert_file=str(tls / f"{name}.crt"),
                key_file=str(tls / f"{name}.key"),
            )

        async with (
            omnirelay.connect(url, tls=client("ingest"), retry=0) as ingest,
            omnirelay.connect(url, tls=client("compactor"), retry=0) as compactor,
            omnirelay.connect(url, tls=client("stranger"), retry=0) as stranger,
        ):
            await ingest.enqueue("table", "sales.orders")
            async with compactor.lease(wait=5) as lease:
                assert lease.resource_id == "sales.orders"
            assert (await stranger.stats()).pending_count == 0  # everybody proved may look
            with pytest.raises(PermissionDenied):
                await ingest.lease(wait=1)
            with pytest.raises(PermissionDenied):
                await compactor.enqueue("table", "web.clicks")
            with pytest.raises(PermissionDenied):
                await stranger.drain()


# -- the readme ---------------------------------------------------------------------------------


def test_the_commands_of_the_readme_work_on_a_new_node(tmp_path: Path) -> None:
    text = (EXAMPLES.parent / "README.md").read_text()
    found = re.search(r"^```sh\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert found is not None
    lines = found[1].splitlines(keepends=True)
    if (
        shutil.which("curl") is None
    ):  # the rest must work without it; `curl.sh` is also sent by hand
        lines = [line for line in lines if not line.startswith("curl ")]
    with running(tmp_path, verb="dev") as node:
        command = f"{sys.executable} -m omnirelay.cli"
        script = "".join(lines).replace("http://127.0.0.1:7400", node.urls["http"])
        done = subprocess.run(
            ["sh", "-ec", script.replace(".venv/bin/omnirelay", command)],
            cwd=tmp_path,
            env={**os.environ, "OMNIRELAY_URL": node.urls["http"]},
            capture_output=True,
            text=True,
            timeout=WITHIN_S,
            check=False,
        )
    assert (done.returncode, done.stderr) == (0, "")
    assert '"sequenceId":' in done.stdout
    assert "sales.orders" in done.stdout
