"""Calls inside one process: the shortest wire, and the measure the others are held to."""

import msgspec

from omnirelay.rpc.codec import JSON, Codec
from omnirelay.rpc.headers import SHARD_KEY, hop_headers, own_headers
from omnirelay.rpc.meta import Reply, Request, Stream
from omnirelay.rpc.procedure import Handler


class MemoryInbound:
    """Nothing to listen on; it exists so that a node can be built without a socket."""

    name = "memory"
    url = "memory:"

    def __init__(self, handler: Handler) -> None:
        self.handler = handler

    async def start(self) -> None:
        return None

    async def stop(self, grace_s: float) -> None:
        return None

    def reload_tls(self) -> None:
        return None


class MemoryOutbound:
    name = "memory"

    def __init__(self, handler: Handler, codec: Codec = JSON) -> None:
        self.codec = codec
        self._handler = handler

    async def start(self) -> None:
        return None

    async def stop(self) -> None:
        return None

    async def __call__(self, request: Request) -> Reply:
        meta = msgspec.structs.replace(request.meta, transport=self.name)
        reply = await self._handler(msgspec.structs.replace(request, meta=meta))
        if isinstance(reply, Stream):
            return reply
        headers = {**hop_headers(self.name, meta.encoding), **own_headers(reply.headers)}
        if meta.shard_key is not None:
            headers[SHARD_KEY] = meta.shard_key
        return msgspec.structs.replace(reply, headers=headers)
