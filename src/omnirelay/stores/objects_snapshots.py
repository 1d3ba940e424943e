"""Snapshots as objects: parts first, then a reference whose key is the sequence, so that the latest
is the last in the list, whoever wrote when."""

import msgspec

from omnirelay.journal.backend import SnapshotRef
from omnirelay.model.errors import Corrupt
from omnirelay.model.ports import failpoint
from omnirelay.stores.objects_bucket import Bucket
from omnirelay.stores.objects_layout import Layout, numbers


class ObjectSnapshots:
    def __init__(self, bucket: Bucket, shard: str) -> None:
        self._bucket = bucket
        self._shard = shard
        self._layout = Layout(shard)

    async def write_part(self, sequence: int, part: int, body: bytes) -> None:
        await self._bucket.put(self._layout.part(sequence, part), body)
        failpoint("objects.after_part")

    async def read_part(self, sequence: int, part: int) -> bytes:
        body = await self._bucket.get(self._layout.part(sequence, part))
        if body is None:
            raise Corrupt(self._shard, sequence, f"part {part} of its snapshot is missing")
        return body

    async def latest(self) -> SnapshotRef | None:
        for key in reversed(await self._bucket.keys(self._layout.refs)):
            body = await self._bucket.get(key)
            if body is not None:
                return self._decoded(body, key)
        return None

    def _decoded(self, body: bytes, key: str) -> SnapshotRef:
        try:
            return msgspec.json.decode(body, type=SnapshotRef)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise Corrupt(
                self._shard, numbers(key)[0], f"its snapshot's reference: {error}"
            ) from None

    async def finish(self, ref: SnapshotRef) -> None:
        await self._bucket.put(self._layout.ref(ref.sequence), msgspec.json.encode(ref))
        failpoint("objects.after_finish")
        # Only what is older: what is newer may be a rival's that is still being written.
        refs = await self._bucket.keys(self._layout.refs)
        await self._bucket.delete([key for key in refs if key < self._layout.ref(ref.sequence)])
        parts = await self._bucket.keys(self._layout.parts)
        first = self._layout.part(ref.sequence, 0)
        await self._bucket.delete([key for key in parts if key < first])
