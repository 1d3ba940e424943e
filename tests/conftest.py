"""What every test may take for granted."""

import os
import signal
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xdist.remote import Producer
    from xdist.scheduler import LoadScopeScheduling

    from omnirelay.testing.servers_hub import HubHost
    from omnirelay.testing.servers_nats import NatsServers
    from omnirelay.testing.servers_objects import ObjectServer
    from omnirelay.testing.servers_postgres import PostgresServer
    from omnirelay.testing.servers_valkey import ValkeyServer

# A failing case of the shipped suites shows its values, as those of this folder do.
pytest.register_assert_rewrite("omnirelay.testing")

pytest_plugins = ["omnirelay.testing.pytest_plugin"]

# A red build is never luck: the gate draws the same examples every time. `HYPOTHESIS_PROFILE=fresh`
# draws new ones and remembers those that failed.
settings.register_profile("gate", derandomize=True, database=None, deadline=None)
settings.register_profile("fresh", deadline=None, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "gate"))

# Servers of tests are forked off, and gRPC's own handlers of that can leave the child hanging.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "false")

# What a shell runs in its background ignores ^C, children included, and some tests send it to one.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(
    config: pytest.Config, log: "Producer"
) -> "LoadScopeScheduling | None":
    """A file's tests share its fixtures, and all of tests/spark one Spark: each of these goes to
    one worker as a whole, the largest first."""
    if config.getoption("dist") != "load":
        return None  # somebody asked for another way
    from tests.scheduling import ByFixtures

    return ByFixtures(config, log)


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """The relay speaks to asyncio; an `async def test_…` needs no marker and no other loop."""
    return "asyncio"


# One server of a product for all tests of a session; each test takes a schema or prefix of its own.


@pytest.fixture(scope="session")
def postgres() -> "Iterator[PostgresServer]":
    from omnirelay.testing.servers_postgres import postgres_server

    with postgres_server() as server:
        yield server


@pytest.fixture(scope="session")
def valkey() -> "Iterator[ValkeyServer]":
    from omnirelay.testing.servers_valkey import valkey_server

    with valkey_server() as server:
        yield server


@pytest.fixture(scope="session")
def hubs() -> "Iterator[HubHost]":
    from omnirelay.testing.servers_hub import hub_host

    with hub_host() as host:
        yield host


@pytest.fixture(scope="session")
def nats_one() -> "Iterator[NatsServers]":
    from omnirelay.testing.servers_nats import nats_servers

    with nats_servers() as servers:
        yield servers


@pytest.fixture(scope="session")
def nats_three() -> "Iterator[NatsServers]":
    from omnirelay.testing.servers_nats import nats_servers

    with nats_servers(3) as servers:
        yield servers


@pytest.fixture(scope="session")
def s3() -> "Iterator[ObjectServer]":
    from omnirelay.testing.servers_objects import s3_server

    with s3_server() as server:
        yield server


@pytest.fixture(scope="session")
def gs() -> "Iterator[ObjectServer]":
    from omnirelay.testing.servers_objects import gs_server

    with gs_server() as server:
        yield server


@pytest.fixture(scope="session")
def az() -> "Iterator[ObjectServer]":
    from omnirelay.testing.servers_objects import az_server

    with az_server() as server:
        yield server
