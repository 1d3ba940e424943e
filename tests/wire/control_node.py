"""A real node on a free port, and what the control-plane tests ask of it."""

import tempfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from omnirelay.identity.policy import GrantSettings, Role
from omnirelay.identity.settings import IdentitySettings
from omnirelay.lease.options import QueueOptions
from omnirelay.node.node import Node
from omnirelay.node.settings import NamespaceSettings, NodeSettings
from omnirelay.testing.raw_http import RawAnswer, RawHttp

CONTROL = "/omnirelay/control"
JSON = "application/json"
HOSTILE = "<img src=x onerror=alert(1)>\"'&</script>"


@asynccontextmanager
async def node(
    *,
    options: QueueOptions | None = None,
    identity: IdentitySettings | None = None,
    namespaces: tuple[str, ...] = (),
) -> AsyncGenerator[Node]:
    data = tempfile.TemporaryDirectory()
    settings = NodeSettings(
        data=data.name,
        http="127.0.0.1:0",
        grpc="",
        stream="",
        journal="memory:",
        node_id="node-1",
        namespace=namespaces,
        namespaces={"resourcelease": NamespaceSettings(options=options or QueueOptions())},
        identity=identity or IdentitySettings(),
        grace_s=0.2,
    )
    with data:
        async with Node(settings) as opened:
            yield opened


def proxied() -> IdentitySettings:
    """Whoever a proxy on loopback names: Ada may look, Bob may change, Eve may do nothing here."""
    return IdentitySettings(
        trusted_proxies=("127.0.0.0/8",),
        roles=(
            GrantSettings(role=Role.OBSERVER, principals=("ada",), namespaces=("control",)),
            GrantSettings(role=Role.OPERATOR, principals=("bob",), namespaces=("control",)),
            GrantSettings(role=Role.WORKER, principals=("eve",), namespaces=("resourcelease",)),
        ),
    )


def url_of(opened: Node) -> str:
    return opened.urls["http"]


async def ask(opened: Node, method: str, path: str, body: bytes = b"", **headers: str) -> RawAnswer:
    async with RawHttp(url_of(opened)) as raw:
        return await raw.ask(method, path, body, **headers)


async def get(opened: Node, path: str) -> Any:
    """Any: JSON."""
    answer = await ask(opened, "GET", path)
    assert answer.status == 200, answer
    assert answer.headers["content-type"] == JSON
    return msgspec.json.decode(answer.body)


async def call(opened: Node, verb: str, body: Any, namespace: str = "resourcelease") -> Any:
    """Any: JSON both ways."""
    answer = await ask(opened, "POST", f"/v1/{namespace}/{verb}", msgspec.json.encode(body))
    assert answer.status == 200, answer
    return msgspec.json.decode(answer.body)


async def enqueue(opened: Node, resource_id: str, namespace: str = "resourcelease") -> Any:
    payload = {"resourceType": "table", "resourceId": resource_id}
    return await call(opened, "enqueue", {"payload": payload}, namespace)
