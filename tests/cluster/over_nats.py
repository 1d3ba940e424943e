"""A journal on three NATS servers, and which of them leads its stream."""

import asyncio
import json
import urllib.request
from collections.abc import Sequence
from itertools import count

from omnirelay.testing.servers_nats import NatsServers

LOOK_S = 0.1
_numbers = count()


class Store:
    """A stream of its own on servers that all tests share."""

    def __init__(self, servers: NatsServers) -> None:
        self.servers = servers
        self._stream = f"MESH{next(_numbers)}"

    def url(self, places: Sequence[str] = ()) -> str:
        return self.servers.url(self._stream, "&replicas=3", places=places)

    async def leader(self, but: str = "") -> str:
        """As those servers know that are not `but`, which is not it; waits until there is one."""
        asked = [
            one for one in self.servers.servers if not but or one is not self.servers.named(but)
        ]
        async with asyncio.timeout(60):
            while True:
                for server in asked:
                    name = await asyncio.to_thread(self._leader, server.monitor)
                    if name not in ("", but):
                        return name
                await asyncio.sleep(LOOK_S)

    def _leader(self, monitor: str) -> str:
        """Asked where it costs a server that has other troubles little."""
        with urllib.request.urlopen(f"{monitor}/jsz?streams=1", timeout=5) as answer:
            accounts = json.load(answer).get("account_details", [])
        streams = [one for account in accounts for one in account.get("stream_detail", [])]
        clusters = [one["cluster"] for one in streams if one["name"] == self._stream]
        return str(clusters[0].get("leader", "")) if clusters else ""
