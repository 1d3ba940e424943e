"""The stores that are servers, for tests that ask the same of each of them."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from omnirelay.testing.servers_hub import HubServer, hub_server
from omnirelay.testing.servers_postgres import PostgresServer, postgres_server
from omnirelay.testing.servers_valkey import ValkeyServer, valkey_server
from tests.servers.postgres_storage import fresh_schema
from tests.servers.redis_storage import fresh_prefix

AnyServer = HubServer | PostgresServer | ValkeyServer

# Any: `request.getfixturevalue`; the session's own server, and an address that nobody else uses.
SERVED: dict[str, Callable[[Callable[[str], Any]], str]] = {
    "hub": lambda fixture: fixture("hubs").fresh(),
    "postgres": lambda fixture: fixture("postgres").url(fresh_schema()),
    "redis": lambda fixture: fixture("valkey").url(fresh_prefix()),
}


@contextmanager
def lone_server(product: str) -> Iterator[AnyServer]:
    """A server that a test may kill."""
    if product == "hub":
        with hub_server() as hub:
            yield hub
    elif product == "postgres":
        with postgres_server() as postgres:
            yield postgres
    else:
        with valkey_server() as valkey:
            yield valkey
