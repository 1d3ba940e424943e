"""A process with as many hubs as it is asked for: `python -m omnirelay.testing.hub_host`.

Reads one JSON line for each wish and answers with one: `{"data": folder, "journal": address}` opens
a hub and is answered with its address; `{"close": address}` ends it.
"""

import asyncio
import json
import sys

from omnirelay.node.node import Node
from omnirelay.node.settings import NodeSettings


async def main() -> None:
    hubs: dict[str, Node] = {}
    while line := await asyncio.to_thread(sys.stdin.readline):
        wish = json.loads(line)
        url = wish.get("close")
        if url is None:
            node = await _opened(wish["data"], wish["journal"])
            url = f"hub://{node.urls['grpc'].partition('://')[2]}"
            hubs[url] = node
        else:
            await hubs.pop(url).__aexit__(None, None, None)
        print(json.dumps(url), flush=True)


async def _opened(data: str, journal: str | None) -> Node:
    settings = NodeSettings(
        data=data,
        journal=journal,
        hub=True,
        namespace=(),
        http=None,
        grpc="127.0.0.1:0",
        stream=None,
        grace_s=0.2,
    )
    return await Node(settings).__aenter__()


if __name__ == "__main__":
    asyncio.run(main())
