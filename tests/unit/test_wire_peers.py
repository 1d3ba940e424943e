"""The harness of `make bench-peers`: what it counts, and that a peer's failure stays the peer's."""

import asyncio
import os
import socket
import sys
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import bench.wire_peers as wire_peers
from bench.wire_peers import (
    Measured,
    beanstalk,
    fetch,
    jobs,
    measure,
    middle,
    parsed,
    servers,
    table,
)
from bench.wire_peers.servers import Binary, CannotStart, disk_folder, running

SERVER = """
import socket, sys
listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[1])
listener.listen()
while True:
    listener.accept()
"""


class MemoryQueue:
    """A peer that cannot be slow: what the jobs count on it is right or wrong by itself."""

    def __init__(self) -> None:
        self.items: asyncio.Queue[bytes] = asyncio.Queue()
        self.acked = 0
        self.links = self.closed = 0

    async def connect(self) -> "MemoryLink":
        self.links += 1
        return MemoryLink(self)


class MemoryLink:
    def __init__(self, queue: MemoryQueue) -> None:
        self.queue = queue

    async def put(self, body: bytes) -> None:
        await asyncio.sleep(0)
        self.queue.items.put_nowait(body)

    async def take(self) -> bytes:
        return await self.queue.items.get()

    async def ack(self, handle: bytes) -> None:
        await asyncio.sleep(0)
        self.queue.acked += 1

    async def put_many(self, bodies: list[bytes]) -> None:
        for body in bodies:
            await self.put(body)

    async def take_many(self, count: int) -> list[bytes]:
        found = min(count, self.queue.items.qsize())
        return [self.queue.items.get_nowait() for _ in range(found)]

    async def ack_many(self, handles: list[bytes]) -> None:
        for handle in handles:
            await self.ack(handle)

    async def close(self) -> None:
        self.queue.closed += 1


@pytest.mark.parametrize("job", sorted(jobs.JOBS))
async def test_a_job_counts_every_acknowledged_item_and_leaves_none(job: str) -> None:
    queue = MemoryQueue()
    outcome = await jobs.JOBS[job](queue.connect, 0.02)
    assert outcome.items == queue.acked > 0
    assert queue.items.empty()
    assert queue.closed == queue.links > 0
    assert outcome.value > 0


async def test_the_consumer_ends_even_if_time_is_up_before_the_first_item() -> None:
    queue = MemoryQueue()
    outcome = await jobs.sequential(queue.connect, 0.0)
    assert outcome.items == queue.acked == 1


def test_a_latency_is_not_mistaken_for_a_rate() -> None:
    outcome = jobs.Outcome(712.34, 300, 1.5)
    assert jobs.measured("nats", "wakeup", outcome, "1").p50_us == 712.3
    assert jobs.measured("nats", "wakeup", outcome, "1").items_per_s is None
    assert jobs.measured("nats", "batched", outcome, "1").items_per_s == 712.3


def test_a_line_of_json_comes_back_as_it_was_written() -> None:
    rated = Measured("redis", "batched", items_per_s=45_660.0, items=9, seconds=1.0, version="7")
    assert parsed("redis", "batched", rated.as_json(), "a warning") == rated
    failed = Measured("redis", "batched", error="no redis-server on PATH")
    assert parsed("redis", "batched", f"noise\n{failed.as_json()}\n", "") == failed


@pytest.mark.parametrize(
    ("out", "err", "reason"),
    [
        ("", "Traceback\nOSError: disk full", "OSError: disk full"),
        ("not json", "", "not json"),
        ('{"peer": "redis", "colour": "red"}', "", '{"peer": "redis", "colour": "red"}'),
        ("[]", "", "[]"),
        ("", "", "it said nothing"),
    ],
)
def test_a_measurement_that_breaks_becomes_its_last_words(out: str, err: str, reason: str) -> None:
    assert parsed("redis", "batched", out, err) == Measured("redis", "batched", error=reason)


def test_without_its_environment_a_peer_says_how_to_build_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wire_peers, "PYTHON", tmp_path / "absent")
    assert "make bench-peers" in (measure("redis", "batched").error or "")


def test_a_measurement_without_end_is_stopped_with_all_it_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stand-in ignores the polite signal, as does the child that plays its server."""
    pids = tmp_path / "pids"
    stubborn = tmp_path / "python"
    stubborn.write_text(
        f'#!/bin/sh\ntrap "" TERM\nsleep 300 &\necho $! > {pids}\nwhile true; do wait; done\n'
    )
    stubborn.chmod(0o755)
    monkeypatch.setattr(wire_peers, "PYTHON", stubborn)
    monkeypatch.setattr(wire_peers, "POLITE_S", 0.2)
    assert measure("redis", "batched", 0.0, grace_s=1.0).error == "no end after 1 s"
    assert is_gone(int(pids.read_text()))


def test_the_median_leaves_out_rounds_that_failed() -> None:
    rounds = [Measured("nats", "batched", items_per_s=rate) for rate in (3.0, 1.0, 2.0)]
    broken = Measured("nats", "batched", error="no")
    assert middle([broken, *rounds]).items_per_s == 2.0
    assert middle([broken, broken]) == broken


def test_the_table_says_why_a_peer_is_missing() -> None:
    shown = table(
        [
            Measured("redis", "batched", items_per_s=45_660.0, version="Redis 7"),
            Measured("redis", "wakeup", p50_us=712.0, version="Redis 7"),
            Measured("nats", "batched", error="no wheel"),
        ]
    )
    assert "45,660/s" in shown
    assert "712 us" in shown
    assert "nats batched: no wheel" in shown


def test_a_server_runs_within_its_block_and_not_after(tmp_path: Path) -> None:
    address = tmp_path / "s"
    python = Binary(Path(sys.executable))
    started = running(python, ["-c", SERVER, str(address)], folder=tmp_path, listens=address)
    with started, socket.socket(socket.AF_UNIX) as client:
        client.connect(str(address))
    with socket.socket(socket.AF_UNIX) as client, pytest.raises(ConnectionRefusedError):
        client.connect(str(address))


def test_a_server_that_leaves_is_reported_with_its_last_words(tmp_path: Path) -> None:
    python = Binary(Path(sys.executable))
    leaving = ["-c", "import sys; sys.exit('the port is taken')"]
    started = running(python, leaving, folder=tmp_path, listens=tmp_path / "s")
    with pytest.raises(CannotStart, match="the port is taken"), started:
        pytest.fail("it never listened")


def test_a_program_that_does_not_run_here_is_named(tmp_path: Path) -> None:
    text = tmp_path / "server"
    text.write_text("not a program")
    text.chmod(0o755)
    for path in (text, tmp_path / "absent"):
        with pytest.raises(CannotStart, match=f"{path.name} does not run"):
            Binary(path).version()
    assert Binary(Path(sys.executable)).version().startswith("3.")


def test_data_never_goes_to_a_file_system_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(servers, "_file_system", lambda path: "tmpfs")
    with pytest.raises(CannotStart, match="in memory"), disk_folder():
        pytest.fail("there is no disk")


def test_the_innermost_mount_names_the_file_system() -> None:
    if not Path("/proc/mounts").exists():
        pytest.skip("this system does not list its mounts")
    assert servers._file_system(Path("/proc/self")) == "proc"


def test_without_packages_a_server_on_path_is_used_and_else_both_reasons_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch, "CACHE", tmp_path / "cache")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(CannotStart, match=r"no apt-get .*; no queued on PATH"):
        fetch.of_distribution("queued", ["queued"])
    (tmp_path / "queued").write_text("#!/bin/sh\n")
    (tmp_path / "queued").chmod(0o755)
    assert fetch.of_distribution("queued", ["queued"]).path == tmp_path / "queued"


@contextmanager
def beanstalk_link() -> Iterator[tuple[beanstalk.BeanstalkLink, deque[bytes]]]:
    """A link whose other end is a list of what was sent."""
    sent: deque[bytes] = deque()

    class Wire(asyncio.Transport):
        def write(self, data: bytes | bytearray | memoryview) -> None:
            sent.append(bytes(data))

    link = beanstalk.BeanstalkLink()
    link.connection_made(Wire())
    yield link, sent


async def test_beanstalk_answers_may_come_in_any_pieces() -> None:
    with beanstalk_link() as (link, sent):
        taking = asyncio.ensure_future(link.take_many(2))
        await asyncio.sleep(0)
        assert sent.pop() == b"reserve\r\nreserve\r\n"
        # The first body looks like an answer itself.
        for byte in b"RESERVED 7 9\r\nDELETED\r\n\r\nRESERVED 8 0\r\n\r\n":
            link.data_received(bytes([byte]))
        assert await taking == [b"7", b"8"]


async def test_an_answer_beanstalkd_should_not_give_is_an_error() -> None:
    with beanstalk_link() as (link, _sent):
        putting = asyncio.ensure_future(link.put(b"x"))
        await asyncio.sleep(0)
        link.data_received(b"OUT_OF_MEMORY\r\n")
        with pytest.raises(ConnectionError, match="OUT_OF_MEMORY"):
            await putting


async def test_a_lost_connection_ends_every_wait() -> None:
    with beanstalk_link() as (link, _sent):
        taking = asyncio.ensure_future(link.take())
        await asyncio.sleep(0)
        link.connection_lost(None)
        with pytest.raises(ConnectionResetError):
            await taking


def is_gone(pid: int) -> bool:
    """Killed is enough: whoever adopts it decides when to collect it."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    status = Path(f"/proc/{pid}/stat")
    return status.exists() and status.read_text().rpartition(")")[2].split()[0] == "Z"
