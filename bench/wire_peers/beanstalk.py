"""beanstalkd with a synced log (-f0). It writes puts and deletes there; a reservation lives in
memory only, so its cycle costs two syncs where the others pay for three."""

import asyncio
from collections import deque
from functools import partial
from pathlib import Path
from typing import cast

from bench.wire_peers import Measured, jobs
from bench.wire_peers.fetch import of_distribution
from bench.wire_peers.servers import running

END = b"\r\n"
SHOWN_BYTES = 40


class BeanstalkLink(asyncio.Protocol):
    """The text protocol by hand: the clients on the index block, or cost more than the server.

    Answers come in the order of the commands, which is all the batching that beanstalkd offers.
    """

    transport: asyncio.Transport

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.waiting: deque[asyncio.Future[bytes]] = deque()
        self.unread = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: Exception | None) -> None:
        while self.waiting:
            self.waiting.popleft().set_exception(exc or ConnectionResetError("beanstalkd left"))

    def data_received(self, data: bytes) -> None:
        data = self.unread + data
        at = 0
        while (end := data.find(END, at)) >= 0:
            line = data[at:end]
            after = end + len(END)
            if line.startswith(b"RESERVED "):
                after += int(line.rpartition(b" ")[2]) + len(END)
                if after > len(data):
                    break
            self.waiting.popleft().set_result(line)
            at = after
        self.unread = data[at:]

    def send(self, commands: bytes, answers: int = 1) -> list["asyncio.Future[bytes]"]:
        futures = [self.loop.create_future() for _ in range(answers)]
        self.waiting.extend(futures)
        self.transport.write(commands)
        return futures

    async def put(self, body: bytes) -> None:
        await self.put_many([body])

    async def take(self) -> bytes:
        (handle,) = await self.take_many(1)
        return handle

    async def ack(self, handle: bytes) -> None:
        await self.ack_many([handle])

    async def put_many(self, bodies: list[bytes]) -> None:
        commands = b"".join(b"put 0 0 60 %d\r\n%b\r\n" % (len(body), body) for body in bodies)
        for answer in self.send(commands, len(bodies)):
            expect(await answer, b"INSERTED")

    async def take_many(self, count: int) -> list[bytes]:
        answers = self.send(b"reserve\r\n" * count, count)
        return [expect(await answer, b"RESERVED").split()[1] for answer in answers]

    async def ack_many(self, handles: list[bytes]) -> None:
        commands = b"".join(b"delete %b\r\n" % handle for handle in handles)
        for answer in self.send(commands, len(handles)):
            expect(await answer, b"DELETED")

    async def close(self) -> None:
        self.transport.close()


def expect(line: bytes, word: bytes) -> bytes:
    if not line.startswith(word):
        raise ConnectionError(f"beanstalkd said {line[:SHOWN_BYTES]!r} instead of {word!r}")
    return line


async def connect(address: Path) -> BeanstalkLink:
    loop = asyncio.get_running_loop()
    _transport, link = await loop.create_unix_connection(BeanstalkLink, str(address))
    return link


def run(peer: str, job: str, seconds: float, folder: Path) -> Measured:
    binary = of_distribution("beanstalkd", ["beanstalkd", "libsystemd0"])
    version = f"beanstalkd {binary.version('-v')}, client by hand"
    address = folder / "s"
    arguments = ["-l", f"unix:{address}", "-b", str(folder), "-f0"]
    with running(binary, arguments, folder=folder, listens=address):
        return jobs.run(peer, job, seconds, connect=partial(connect, address), version=version)
