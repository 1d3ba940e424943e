"""Hosts of a test: Linux network namespaces, each with one TUN device, and a switch between them
that can lose what goes from one to another or let it take its time.

Whoever is cut off is gone as a machine is whose cable was pulled: nobody refuses a connection to it
or resets one, packets are sent again and again and arrive after the cut, and only a time limit ends
a wait. Nothing appears in the machine's own network, and nothing is left when the test has ended,
however it ended: namespaces and devices last as long as somebody holds them.

It needs Linux, the right to make namespaces, which root has, and /dev/net/tun. It needs no program
that sets networks up, and nothing of a kernel to slow a link down with, which not every one has.
"""

import ctypes
import fcntl
import json
import os
import socket
import stat
import struct
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import NamedTuple

from omnirelay.testing import cluster_switch
from omnirelay.testing.host import Host
from omnirelay.testing.servers import CannotStart

TUN = "/dev/net/tun"
_CLONE_NEWNET = 0x40000000
_SIOCSIFFLAGS = 0x8914
_SIOCSIFADDR = 0x8916
_SIOCSIFNETMASK = 0x891C
_SIOCSIFMTU = 0x8922
_TUNSETIFF = 0x400454CA
_IFF_UP = 0x1
_IFF_TUN_WITHOUT_HEADER = 0x1001
_OWN = "/proc/thread-self/ns/net"
_NET = "10.77.0."
_MASK = "255.255.255.0"
_MTU = 9_000
_LAST_NUMBER = 254
_ANSWER_S = 10.0


class HostRoad(NamedTuple):
    """All roads between two hosts are one: what is cut is what one sends to the other."""

    hosts: "Hosts"
    ends: tuple[int, int]
    place: str

    def cut(self, *, there: bool = True, back: bool = True) -> None:
        here, other = self.ends
        self.hosts.lost |= {(here, other)} if there else set()
        self.hosts.lost |= {(other, here)} if back else set()
        self.hosts.tell()

    def slow_down(self, delay_s: float) -> None:
        here, other = self.ends
        self.hosts.late |= {(here, other): delay_s, (other, here): delay_s}
        self.hosts.tell()

    def heal(self) -> None:
        self.hosts.lost -= {self.ends, (self.ends[1], self.ends[0])}
        self.slow_down(0.0)


class Hosts:
    def __init__(self, control: socket.socket, held: ExitStack, own: "_Made") -> None:
        self.lost: set[tuple[int, int]] = set()
        self.late: dict[tuple[int, int], float] = {}
        self._control = control
        self._held = held
        self._hosts: list[Host] = []
        self._telling = threading.Lock()
        self.callers = self._joined(own)
        """Where the test itself is."""

    def host(self) -> Host:
        assert len(self._hosts) < _LAST_NUMBER
        return self._joined(_made(len(self._hosts) + 1))

    def _joined(self, made: "_Made") -> Host:
        self._held.callback(os.close, made.network)
        self._tell({"host": len(self._hosts) + 1}, [made.device])
        os.close(made.device)
        self._hosts.append(Host(made.address, f"/proc/{os.getpid()}/fd/{made.network}"))
        return self._hosts[-1]

    def road(self, here: Host, there: Host, port: int) -> HostRoad:
        ends = (self._hosts.index(here) + 1, self._hosts.index(there) + 1)
        return HostRoad(self, ends, f"{there.address}:{port}")

    def roads_of(self, host: Host) -> list[HostRoad]:
        """With everybody else."""
        return [self.road(host, other, 0) for other in self._hosts if other is not host]

    def tell(self) -> None:
        late = [(*ends, delay_s) for ends, delay_s in self.late.items() if delay_s]
        self._tell({"lost": sorted(self.lost), "late": late})

    def _tell(self, words: object, devices: list[int] | None = None) -> None:
        """Returns when it is so."""
        with self._telling:
            socket.send_fds(self._control, [json.dumps(words).encode()], devices or [])
            assert self._control.recv(16) == b"done", "the switch has ended; its words are above"


@contextmanager
def hosts() -> Iterator[Hosts]:
    """The thread that asks for them is on one of them until it leaves the block, and so is each
    thread and process that it starts meanwhile: open nothing there that others use later."""
    first = _made(1)
    with ExitStack() as held:
        own, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        own.settimeout(_ANSWER_S)
        held.enter_context(own)
        with other:
            switch = subprocess.Popen(
                [sys.executable, "-I", "-S", cluster_switch.__file__, str(other.fileno())],
                pass_fds=[other.fileno()],
                stdin=subprocess.DEVNULL,
            )
        held.callback(switch.wait, _ANSWER_S)
        held.callback(own.shutdown, socket.SHUT_RDWR)
        made = Hosts(own, held, first)
        before = os.open(_OWN, os.O_RDONLY)
        held.callback(os.close, before)
        _enter(made.callers.network)
        held.callback(_enter, f"/proc/self/fd/{before}")
        yield made


def _enter(network: str) -> None:
    """With the thread that calls."""
    entered = os.open(network, os.O_RDONLY)
    try:
        _check(_libc().setns(entered, _CLONE_NEWNET))
    finally:
        os.close(entered)


class _Made(NamedTuple):
    address: str
    network: int
    device: int


def _made(number: int) -> _Made:
    if sys.platform != "linux":
        raise CannotStart("hosts of a test are network namespaces, which only Linux has")
    with ThreadPoolExecutor(1) as thread:  # it changes its network, and ends
        return thread.submit(_make, f"{_NET}{number}").result()


def _make(address: str) -> _Made:
    _check(_libc().unshare(_CLONE_NEWNET))
    try:
        device = _device()
        fcntl.ioctl(device, _TUNSETIFF, struct.pack("16sH22x", b"net0", _IFF_TUN_WITHOUT_HEADER))
    except OSError as error:
        raise CannotStart(f"a host of a test needs a TUN device, {TUN}: {error}") from error
    with socket.socket(type=socket.SOCK_DGRAM) as asked:
        for name, value in ((_SIOCSIFADDR, address), (_SIOCSIFNETMASK, _MASK)):
            where = struct.pack("HH4s8x", socket.AF_INET, 0, socket.inet_aton(value))
            fcntl.ioctl(asked, name, struct.pack("16s16s8x", b"net0", where))
        fcntl.ioctl(asked, _SIOCSIFMTU, struct.pack("16si20x", b"net0", _MTU))
        for card in (b"net0", b"lo"):
            fcntl.ioctl(asked, _SIOCSIFFLAGS, struct.pack("16sH22x", card, _IFF_UP))
    return _Made(address, os.open(_OWN, os.O_RDONLY), device)


def _device() -> int:
    """A container may lack the file though its kernel has the device: root makes one."""
    try:
        return os.open(TUN, os.O_RDWR | os.O_NONBLOCK)
    except FileNotFoundError:
        with tempfile.TemporaryDirectory() as folder:
            made = f"{folder}/tun"
            os.mknod(made, stat.S_IFCHR | 0o600, os.makedev(10, 200))
            return os.open(made, os.O_RDWR | os.O_NONBLOCK)


def _libc() -> ctypes.CDLL:
    """Python has these calls of its own from 3.12 on."""
    return ctypes.CDLL(None, use_errno=True)


def _check(result: int) -> None:
    if result:
        why = os.strerror(ctypes.get_errno())
        raise CannotStart(
            f"no network namespace for a host of a test: {why}. Run the test as root, or leave out "
            "the tests that need hosts: pytest -k 'not hosts'"
        )
