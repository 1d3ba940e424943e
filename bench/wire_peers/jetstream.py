"""NATS JetStream: a work-queue stream on disk, one durable pull consumer, sync_interval always."""

import asyncio
import json
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
from bench.wire_peers.servers import free_port, of_scripts, running

STREAM, SUBJECT, DURABLE = "JOBS", "jobs", "workers"
WAIT_S = 30.0


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


async def connect(port: int) -> JetStreamLink:
    client = await nats.connect(f"nats://127.0.0.1:{port}")
    stream = client.jetstream()
    config = StreamConfig(
        name=STREAM,
        subjects=[SUBJECT],
        retention=RetentionPolicy.WORK_QUEUE,
        storage=StorageType.FILE,
    )
    await stream.add_stream(config)  # the same one again for all but the first
    pull = await stream.pull_subscribe(
        SUBJECT, durable=DURABLE, config=ConsumerConfig(ack_policy=AckPolicy.EXPLICIT)
    )
    return JetStreamLink(client, stream, pull)


def run(peer: str, job: str, seconds: float, folder: Path) -> Measured:
    binary = of_scripts("nats-server")
    version = f"nats-server {binary.version()}, nats-py {metadata.version('nats-py')}"
    port = free_port()
    config = folder / "nats.conf"
    store = json.dumps(str(folder / "store"))
    config.write_text(
        f"listen: 127.0.0.1:{port}\njetstream {{ store_dir: {store}, sync_interval: always }}\n"
    )
    with running(binary, ["-c", str(config)], folder=folder, listens=port):
        return jobs.run(peer, job, seconds, connect=partial(connect, port), version=version)
