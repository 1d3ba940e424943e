"""Ports for servers that must know them beforehand, because others are told or they come back."""

import os
import socket
from contextlib import suppress
from typing import Final

LOOPBACK: Final = "127.0.0.1"
LOWEST: Final = 20_000
PORTS: Final = 12_000


def free_port() -> int:
    """Below those that the system gives to callers, so that nobody's connection sits on it before
    its server starts or while it is down; and given to no other process while this one lives.

    The claim is the same port of UDP, which none of our servers uses: it is kept open on purpose,
    and the system takes it back however this process ends. Raises OSError if all are taken.
    """
    start = os.getpid() * 97  # processes that ask at once look far apart
    for step in range(PORTS):
        port = LOWEST + (start + step) % PORTS
        with suppress(OSError), socket.socket(type=socket.SOCK_DGRAM) as claim:
            claim.bind((LOOPBACK, port))
            with socket.socket() as probe:
                probe.bind((LOOPBACK, port))
            claim.detach()
            return port
    raise OSError(f"no free port among {LOWEST} to {LOWEST + PORTS - 1} of {LOOPBACK}")


def free_ports(count: int) -> list[int]:
    return [free_port() for _ in range(count)]
