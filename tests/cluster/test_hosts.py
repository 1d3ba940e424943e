"""Hosts of a test are what the machines of a mesh are to one another."""

import asyncio
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from omnirelay.model.errors import OutcomeUnknown
from omnirelay.model.ports import SystemClock
from omnirelay.rpc.meta import Request, RequestMeta
from omnirelay.testing import cluster_hosts
from omnirelay.testing.cluster_hosts import Hosts, hosts
from omnirelay.testing.servers import NOBODY
from omnirelay.transports.http_outbound import HttpOutbound
from tests.cluster.on_host import PORT, answering

ECHO = "print(data.decode(), flush=True); line.sendall(data)"
ANSWERS_ONCE = """if b"first" in data: line.sendall(b"HTTP/1.1 204 No Content\\r\\n\\r\\n")
if b"second" in data: print("heard", flush=True)"""
ASK_AS_NOBODY = f"""
import os
from omnirelay.testing.cluster_hosts import hosts
os.seteuid({NOBODY})
with hosts():
    pass
"""
SHORT_S = 0.3
SILENCE_S = 1.0


@pytest.fixture
def net() -> Iterator[Hosts]:
    with hosts() as net:
        yield net


def test_a_container_without_the_file_of_the_device_has_hosts_all_the_same(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(cluster_hosts, "TUN", str(tmp_path / "tun"))
    with hosts() as net:
        far = net.host()
        with (
            answering(far, ECHO),
            socket.create_connection((far.address, PORT), timeout=5) as line,
        ):
            line.sendall(b"one")
            assert line.recv(100) == b"one"


@pytest.mark.parametrize(("there", "back"), [(True, True), (False, True), (True, False)])
def test_what_is_cut_is_neither_refused_nor_lost_for_ever(
    net: Hosts, there: bool, back: bool
) -> None:
    far = net.host()
    road = net.road(net.callers, far, PORT)
    with answering(far, ECHO) as printed, socket.create_connection((far.address, PORT)) as line:
        road.cut(there=there, back=back)
        line.sendall(b"one")
        line.settimeout(SHORT_S)
        with pytest.raises(TimeoutError):
            line.recv(100)
        if not there:
            assert printed.readline() == "one\n", "it arrives, and its answer does not"
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
    with answering(far, ECHO), socket.create_connection((far.address, PORT), timeout=5) as line:
        line.sendall(b"one")
        assert line.recv(100) == b"one"


def test_a_slow_road_takes_its_time_in_either_direction(net: Hosts) -> None:
    far = net.host()
    with answering(far, ECHO), socket.create_connection((far.address, PORT), timeout=5) as line:
        net.road(net.callers, far, PORT).slow_down(SHORT_S / 2)
        began = time.monotonic()
        line.sendall(b"one")
        assert line.recv(100) == b"one"
        assert time.monotonic() - began >= SHORT_S


@pytest.mark.parametrize("gone", ["before it is asked", "while it is asked"])
async def test_a_caller_over_http_does_not_wait_for_ever_for_a_host_that_is_gone(
    net: Hosts, gone: str
) -> None:
    far = net.host()
    road = net.road(net.callers, far, PORT)
    outbound = HttpOutbound(f"http://{road.place}", clock=SystemClock(), silence_s=SILENCE_S)
    with answering(far, ANSWERS_ONCE) as printed:
        await outbound(Request(RequestMeta(procedure="q::first", transport="http")))
        if gone == "before it is asked":
            road.cut()
        asked = asyncio.create_task(
            outbound(Request(RequestMeta(procedure="q::second", transport="http")))
        )
        if gone == "while it is asked":
            assert await asyncio.to_thread(printed.readline) == "heard\n"
            road.cut()
        async with asyncio.timeout(10):
            with pytest.raises(OutcomeUnknown):
                await asked
    await outbound.stop()


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
