"""A real node in a process of its own, as `serve` starts it, and a wire that loses answers."""

import os
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from tests.cli.command import Ended, argv, omnirelay

STARTS_WITHIN_S = 15


@dataclass
class Running:
    process: "subprocess.Popen[str]"
    urls: dict[str, str]
    folder: Path

    def __call__(self, *words: str, **environment: str) -> Ended:
        """A client command against it, in its folder."""
        told = {"OMNIRELAY_URL": self.urls["http"], **environment}
        return omnirelay(*words, folder=self.folder, **told)

    def stop(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(STARTS_WITHIN_S)


def start(folder: Path, *flags: str, verb: str = "serve") -> Running:
    """Returns when it says that it serves."""
    places = [word for name in ("http", "grpc", "stream") for word in (f"--{name}", "127.0.0.1:0")]
    clean = {k: v for k, v in os.environ.items() if not k.startswith("OMNIRELAY_")}
    process = subprocess.Popen(
        argv(verb, "--json", *places, *flags),
        cwd=folder,
        env=clean,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    watchdog = threading.Timer(STARTS_WITHIN_S, process.kill)
    watchdog.start()
    assert process.stdout is not None
    line = process.stdout.readline()
    watchdog.cancel()
    if not line:
        process.kill()
        raise AssertionError(process.communicate(timeout=STARTS_WITHIN_S)[1])
    said = msgspec.json.decode(line, type=dict[str, object])
    urls = {name: str(said[name]) for name in ("http", "grpc", "stream")}
    return Running(process, urls, folder)


@contextmanager
def running(folder: Path, *flags: str, verb: str = "serve") -> Iterator[Running]:
    node = start(folder, *flags, verb=verb)
    try:
        yield node
    finally:
        node.process.kill()
        node.process.communicate(timeout=STARTS_WITHIN_S)


@contextmanager
def losing_answers(url: str, word: bytes) -> Iterator[str]:
    """The address of a wire to `url` that drops the first answer to a request with `word` in it."""
    target = (urlsplit(url).hostname or "", urlsplit(url).port or 0)
    door = socket.create_server(("127.0.0.1", 0))
    armed = threading.Event()
    armed.set()

    def pass_on(caller: socket.socket) -> None:
        lost = threading.Event()
        with caller, socket.create_connection(target) as node, suppress(OSError):
            threading.Thread(target=answer, args=(node, caller, lost), daemon=True).start()
            while asked := caller.recv(1 << 20):
                if word in asked and armed.is_set():
                    armed.clear()
                    lost.set()
                node.sendall(asked)

    def answer(node: socket.socket, caller: socket.socket, lost: threading.Event) -> None:
        with suppress(OSError):
            while part := node.recv(1 << 20):
                if lost.is_set():
                    break
                caller.sendall(part)
            caller.shutdown(socket.SHUT_RDWR)

    def take() -> None:
        with suppress(OSError):
            while True:
                caller, _ = door.accept()
                threading.Thread(target=pass_on, args=(caller,), daemon=True).start()

    threading.Thread(target=take, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{door.getsockname()[1]}"
    finally:
        door.shutdown(socket.SHUT_RDWR)
        door.close()


def token_of(leased: Ended) -> str:
    token = msgspec.json.decode(leased.out)["ownershipToken"]
    lease_id = token["leaseId"].replace("-", "")
    return f"{token['sequenceId']}:{token['attempt']}:{lease_id}"
