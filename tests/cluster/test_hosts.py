"""Hosts of a test are what the machines of a mesh are to one another."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from omnirelay.testing.cluster_hosts import Hosts, hosts
from omnirelay.testing.host import Host, bound_to_us
from omnirelay.testing.servers import NOBODY

PORT = 5000
ECHO = f"""
import socket, sys
with socket.create_server((sys.argv[1], {PORT})) as server:
    print("ready", flush=True)
    line, _ = server.accept()
    while data := line.recv(100):
        print(data.decode(), flush=True)
        line.sendall(data)
"""
ASK_AS_NOBODY = f"""
import os
from omnirelay.testing.cluster_hosts import hosts
os.seteuid({NOBODY})
with hosts():
    pass
"""
SHORT_S = 0.3


@pytest.fixture
def net() -> Iterator[Hosts]:
    with hosts() as net:
        yield net


@contextmanager
def echo(host: Host) -> Iterator["subprocess.Popen[str]"]:
    command = bound_to_us([sys.executable, "-c", ECHO, host.address], host)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        assert server.stdout.readline() == "ready\n"
        yield server
        server.kill()


@pytest.mark.parametrize(("there", "back"), [(True, True), (False, True), (True, False)])
def test_what_is_cut_is_neither_refused_nor_lost_for_ever(
    net: Hosts, there: bool, back: bool
) -> None:
    far = net.host()
    road = net.road(net.callers, far, PORT)
    with echo(far) as server, socket.create_connection((far.address, PORT)) as line:
        assert server.stdout is not None
        road.cut(there=there, back=back)
        line.sendall(b"one")
        line.settimeout(SHORT_S)
        with pytest.raises(TimeoutError):
            line.recv(100)
        if not there:
            assert server.stdout.readline() == "one\n", "it arrives, and its answer does not"
        road.heal()
        line.settimeout(5)
        assert line.recv(100) == b"one"


def test_a_host_that_is_cut_off_does_not_even_refuse(net: Hosts) -> None:
    far = net.host()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((far.address, PORT), timeout=5)
    for road in net.roads_of(far):
        road.cut()
    with pytest.raises(TimeoutError):
        socket.create_connection((far.address, PORT), timeout=SHORT_S)


def test_others_do_not_suffer_from_a_cut(net: Hosts) -> None:
    gone, far = net.host(), net.host()
    for road in net.roads_of(gone):
        road.cut()
    with echo(far), socket.create_connection((far.address, PORT), timeout=5) as line:
        line.sendall(b"one")
        assert line.recv(100) == b"one"


def test_a_slow_road_takes_its_time_in_either_direction(net: Hosts) -> None:
    far = net.host()
    with echo(far), socket.create_connection((far.address, PORT), timeout=5) as line:
        net.road(net.callers, far, PORT).slow_down(SHORT_S / 2)
        began = time.monotonic()
        line.sendall(b"one")
        assert line.recv(100) == b"one"
        assert time.monotonic() - began >= SHORT_S


def test_nothing_of_hosts_is_seen_outside_or_left() -> None:
    own, cards = os.readlink("/proc/thread-self/ns/net"), Path("/proc/self/net/dev").read_text
    held = sorted(os.listdir("/proc/self/fd"))
    with hosts() as net:
        net.host()
        assert os.readlink("/proc/thread-self/ns/net") != own
        assert "net0" in Path("/proc/thread-self/net/dev").read_text()
    assert os.readlink("/proc/thread-self/ns/net") == own
    assert "net0" not in cards()
    assert sorted(os.listdir("/proc/self/fd")) == held


def test_who_may_not_have_hosts_is_told_what_to_do() -> None:
    asked = subprocess.run(
        [sys.executable, "-c", ASK_AS_NOBODY], capture_output=True, text=True, check=False
    )
    assert asked.returncode != 0
    assert "Operation not permitted. Run the test as root" in asked.stderr
