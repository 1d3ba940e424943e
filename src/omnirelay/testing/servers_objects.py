"""Object stores that tests can start: S3 as moto serves it, and small ones that speak the part of
Google's XML protocol and of Azure's that obstore uses.

Those are our own: what there is on PyPI for Google speaks only the JSON protocol, which obstore
does not, and Azurite comes from another registry and wants another language.
"""

import json
import sys
import sysconfig
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

from omnirelay.cli.free_ports import LOOPBACK, free_port
from omnirelay.testing import azure_objects, google_objects
from omnirelay.testing.azure_objects import ACCOUNT, KEY
from omnirelay.testing.servers import CannotStart, Server, own_folder

BUCKET = "journals"


class ObjectServer(Server):
    def __init__(
        self,
        command: list[str],
        *,
        folder: Path,
        port: int,
        scheme: str,
        environment: dict[str, str],
    ) -> None:
        super().__init__(command, folder=folder, port=port)
        self.environment = environment
        """What a process needs to find it."""
        self._scheme = scheme

    def url(self, prefix: str) -> str:
        return f"{self._scheme}://{BUCKET}/{prefix}"


@contextmanager
def s3_server() -> Iterator[ObjectServer]:
    port = free_port()
    program = Path(sysconfig.get_path("scripts")) / "moto_server"
    if not program.exists():
        raise CannotStart(f"{program} is missing: run `make setup`, which brings moto")
    environment = {
        "AWS_ENDPOINT_URL": f"http://{LOOPBACK}:{port}",
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "a-secret-that-no-message-shows",
        "AWS_REGION": "us-east-1",
    }
    command = [str(program), "-H", LOOPBACK, "-p", str(port)]
    with _running(command, port, "s3", environment) as server:
        make = urllib.request.Request(f"http://{LOOPBACK}:{port}/{BUCKET}", method="PUT")
        urllib.request.urlopen(make, timeout=10).close()  # noqa: S310 - our own server
        yield server


@contextmanager
def gs_server() -> Iterator[ObjectServer]:
    port = free_port()
    account = {
        "gcs_base_url": f"http://{LOOPBACK}:{port}",
        "disable_oauth": True,
        "client_email": "",
        "private_key": "",
        "private_key_id": "",
    }
    environment = {"GOOGLE_SERVICE_ACCOUNT_KEY": json.dumps(account)}
    with _running(_own(google_objects, port), port, "gs", environment) as server:
        yield server


@contextmanager
def az_server() -> Iterator[ObjectServer]:
    port = free_port()
    environment = {
        "AZURE_STORAGE_ACCOUNT_NAME": ACCOUNT,
        "AZURE_STORAGE_ACCOUNT_KEY": KEY,
        "AZURE_STORAGE_ENDPOINT": f"http://{LOOPBACK}:{port}/{ACCOUNT}",
    }
    with _running(_own(azure_objects, port), port, "az", environment) as server:
        yield server


def _own(program: ModuleType, port: int) -> list[str]:
    return [sys.executable, "-m", program.__name__, str(port)]


@contextmanager
def _running(
    command: list[str], port: int, scheme: str, environment: dict[str, str]
) -> Iterator[ObjectServer]:
    with own_folder() as folder:
        server = ObjectServer(
            command, folder=folder, port=port, scheme=scheme, environment=environment
        )
        server.start()
        try:
            yield server
        finally:
            server.kill()
