"""Checkpoints in a key-value bucket beside the stream, so that `nats kv` shows them."""

from typing import TYPE_CHECKING

import msgspec
import nats.js.errors
from nats.js.api import KeyValueConfig, StorageType

from omnirelay.journal.checkpoint import Checkpoint
from omnirelay.model.errors import Corrupt
from omnirelay.stores.nats_address import NatsAddress, token
from omnirelay.stores.nats_link import REQUEST_S, NatsLink

if TYPE_CHECKING:
    from nats.js.kv import KeyValue


class NatsCheckpoints:
    def __init__(self, address: NatsAddress) -> None:
        self._address = address
        self._link = NatsLink(address)
        self._bucket: KeyValue | None = None

    async def read(self, name: str, shard: str) -> Checkpoint | None:
        return (await self._found(name, shard))[1]

    async def readers(self, shard: str) -> list[Checkpoint]:
        found = await self._readers(shard)
        return [
            Checkpoint(one.name, shard, one.position, {}, one.updated_at)
            for one in sorted(found, key=lambda one: one.name)
        ]

    async def slowest(self, shard: str) -> int | None:
        return min((one.position for one in await self._readers(shard)), default=None)

    async def close(self) -> None:
        await self._link.close()

    async def _opened(self) -> "KeyValue":
        if self._bucket is None or not self._link.is_open:
            await self._link.open()
            with self._link.errors():
                self._bucket = await self._found_or_made()
        return self._bucket

    async def _found_or_made(self) -> "KeyValue":
        stream = self._link.client.jetstream(timeout=REQUEST_S)
        name = self._address.positions_bucket
        try:
            return await stream.key_value(name)
        except nats.js.errors.NotFoundError:
            journal = await self._link.manager.stream_info(self._address.stream)
            config = KeyValueConfig(
                bucket=name,
                description="OmniRelay: how far each follower has come",
                history=1,
                storage=StorageType.FILE,
                replicas=journal.config.num_replicas or 1,
                direct=True,
            )
            return await stream.create_key_value(config)

    async def _found(self, name: str, shard: str) -> tuple[int, Checkpoint | None]:
        """The key's revision too, for a conditional write. From the leader: a position that lags
        would be written back."""
        bucket = await self._opened()
        subject = f"$KV.{self._address.positions_bucket}.{_key(name, shard)}"
        found = await self._link.leader_get(bucket._stream, last_by_subj=subject)
        if found is None:
            return 0, None
        if "KV-Operation" in found.headers:
            return found.sequence, None
        return found.sequence, _decoded(found.data, shard)

    async def write(self, checkpoint: Checkpoint) -> None:
        bucket = await self._opened()
        key = _key(checkpoint.name, checkpoint.shard)
        body = msgspec.json.encode(checkpoint)
        while True:
            revision, known = await self._found(checkpoint.name, checkpoint.shard)
            if known is not None and known.position > checkpoint.position:
                return
            with self._link.errors():
                try:
                    await bucket.update(key, body, last=revision)
                    return
                except nats.js.errors.KeyWrongLastSequenceError:
                    continue  # another handle of the same reader was quicker

    async def _readers(self, shard: str) -> list[Checkpoint]:
        """From the leader too: pruning must not miss a reader that has just come."""
        stream = (await self._opened())._stream
        subjects = f"$KV.{self._address.positions_bucket}.{token(shard)}.*"
        with self._link.errors():
            info = await self._link.manager.stream_info(stream, subjects)
        found = [
            await self._link.leader_get(stream, last_by_subj=subject)
            for subject in info.state.subjects or ()
        ]
        return [
            _decoded(one.data, shard)
            for one in found
            if one is not None and "KV-Operation" not in one.headers
        ]

    async def forget(self, name: str, shard: str) -> None:
        bucket = await self._opened()
        with self._link.errors():
            await bucket.purge(_key(name, shard))


def _key(name: str, shard: str) -> str:
    return f"{token(shard)}.{token(name)}"


def _decoded(body: bytes, shard: str) -> Checkpoint:
    try:
        return msgspec.json.decode(body, type=Checkpoint)
    except msgspec.DecodeError as error:
        raise Corrupt(shard, 0, f"a follower's position cannot be read: {error}") from None
