"""NATS JetStream: a work-queue stream on disk, one durable pull consumer, sync_interval always; one
server or three."""

import asyncio
import json
import time
from contextlib import ExitStack
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any

import nats  # type: ignore[import-not-found,unused-ignore]
from nats.js.api import (  # type: ignore[import-not-found,unused-ignore]
    AckPolicy,
    ConsumerConfig,
    RetentionPolicy,
    StorageType,
    StreamConfig,
)

from bench.wire_peers import Measured, jobs
from bench.wire_peers.servers import START_S, CannotStart, free_port, of_scripts, running

STREAM, SUBJECT, DURABLE = "JOBS", "jobs", "workers"
WAIT_S = 30.0
ANSWER_S = 3.0  # a cluster that has no leader yet does not answer at all


class JetStreamLink:
    """nats-py. An acknowledgement waits for its answer, as everywhere; of a batch only the last
    does, because the server takes those of one connection in order."""

    def __init__(self, client: Any, stream: Any, pull: Any) -> None:
        self.client = client
        self.stream = stream
        self.pull = pull

    async def put(self, body: bytes) -> None:
        await self.stream.publish(SUBJECT, body, timeout=WAIT_S)

    async def take(self) -> Any:
        (message,) = await self.pull.fetch(1, timeout=WAIT_S)
        return message

    async def ack(self, handle: Any) -> None:
        await handle.ack_sync(timeout=WAIT_S)

    async def put_many(self, bodies: list[bytes]) -> None:
        await asyncio.gather(*[await self.stream.publish_async(SUBJECT, body) for body in bodies])

    async def take_many(self, count: int) -> list[Any]:
        found: list[Any] = await self.pull.fetch(count, timeout=WAIT_S)
        return found

    async def ack_many(self, handles: list[Any]) -> None:
        for handle in handles[:-1]:
            await handle.ack()
        await handles[-1].ack_sync(timeout=WAIT_S)

    async def close(self) -> None:
        await self.client.close()


async def connect(port: int, replicas: int) -> JetStreamLink:
    client = await nats.connect(f"nats://127.0.0.1:{port}")
    stream = client.jetstream(timeout=ANSWER_S)
    config = StreamConfig(
        name=STREAM,
        subjects=[SUBJECT],
        retention=RetentionPolicy.WORK_QUEUE,
        storage=StorageType.FILE,
        num_replicas=replicas,
    )
    await stream.add_stream(config)  # the same one again for all but the first
    pull = await stream.pull_subscribe(
        SUBJECT, durable=DURABLE, config=ConsumerConfig(ack_policy=AckPolicy.EXPLICIT)
    )
    return JetStreamLink(client, stream, pull)


CLUSTER = "cluster {{ name: bench, listen: 127.0.0.1:{own}, routes: [{routes}] }}\n"


def configure(folder: Path, servers: int) -> list[tuple[Path, int]]:
    """The files of so many servers, and the ports they listen on."""
    routes = [free_port() for _ in range(servers)]
    found = []
    for number, own in enumerate(routes):
        port, config = free_port(), folder / f"nats{number}.conf"
        store = json.dumps(str(folder / f"store{number}"))
        text = f"server_name: n{number}\nlisten: 127.0.0.1:{port}\n"
        text += f"jetstream {{ store_dir: {store}, sync_interval: always }}\n"
        if servers > 1:
            named = ", ".join(f"nats://127.0.0.1:{route}" for route in routes)
            text += CLUSTER.format(own=own, routes=named)
        config.write_text(text)
        found.append((config, port))
    return found


async def settle(port: int, replicas: int) -> None:
    """A cluster listens before it has chosen who leads."""
    until = time.monotonic() + START_S
    while True:
        try:
            await (await connect(port, replicas)).close()
        except nats.errors.Error as reason:
            if time.monotonic() > until:
                raise CannotStart(f"no stream with {replicas} replicas: {reason}") from reason
            await asyncio.sleep(0.2)
        else:
            return


def run(peer: str, job: str, seconds: float, folder: Path) -> Measured:
    """`nats` is one server, `nats3` a cluster of three with every message on all of them."""
    servers = 3 if peer == "nats3" else 1
    binary = of_scripts("nats-server")
    version = f"nats-server {binary.version()}, nats-py {metadata.version('nats-py')}"
    with ExitStack() as stack:
        configured = configure(folder, servers)
        for config, port in configured:
            stack.enter_context(running(binary, ["-c", str(config)], folder=folder, listens=port))
        port = configured[0][1]
        asyncio.run(settle(port, servers))
        link = partial(connect, port, servers)
        return jobs.run(peer, job, seconds, connect=link, version=version)
