"""Small servers on hosts of their own."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO

from omnirelay.testing.host import Host, bound_to_us

PORT = 5000
_LISTEN = f"""
import socket, sys
with socket.create_server((sys.argv[1], {PORT})) as server:
    print("ready", flush=True)
    line, _ = server.accept()
    while data := line.recv(10_000):
"""


@contextmanager
def answering(host: Host, code: str) -> Iterator[IO[str]]:
    """`code` is what it does with `data` that comes on its `line`. Gives what it prints."""
    told = _LISTEN + "".join(f"        {one}\n" for one in code.splitlines())
    command = bound_to_us([sys.executable, "-c", told, host.address], host)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            assert server.stdout.readline() == "ready\n"
            yield server.stdout
        finally:
            server.kill()
