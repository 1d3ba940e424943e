"""Where a process of a test runs: beside the test itself, or on a host of its own."""

import sys
from collections.abc import Sequence
from typing import NamedTuple

from omnirelay.cli.free_ports import LOOPBACK

_BIND = """
import ctypes, os, sys
user, network = sys.argv[1:3]
libc = ctypes.CDLL(None, use_errno=True)
if network and libc.setns(os.open(network, os.O_RDONLY | os.O_CLOEXEC), 0):
    sys.exit(f"cannot enter {network}: {os.strerror(ctypes.get_errno())}")
if user:
    os.setgroups([])
    os.setgid(int(user))
    os.setuid(int(user))
if sys.platform == "linux":
    libc.prctl(1, 9)  # PR_SET_PDEATHSIG, after the user: a change of it forgets this
os.execv(sys.argv[3], sys.argv[3:])
"""


class Host(NamedTuple):
    address: str
    network: str = ""
    """The path of its network namespace; that of whoever starts something there, if it is empty."""


HERE = Host(LOOPBACK)


def bound_to_us(command: Sequence[str], host: Host = HERE, user: int | None = None) -> list[str]:
    """What to start in place of `command`, so that it runs on that host and as that user, and a
    test run that is killed does not leave it behind. A program of its own sees to that before it
    becomes the command: Python code between fork and exec may wait for ever for a lock that some
    thread of ours held, as gRPC's do."""
    who = "" if user is None else str(user)
    return [sys.executable, "-I", "-S", "-c", _BIND, who, host.network, *command]
