"""Positions on servers behave as all others do."""

from collections.abc import AsyncIterator
from itertools import count
from typing import TYPE_CHECKING

import pytest

from omnirelay.journal.checkpoint import CheckpointStore
from omnirelay.stores.registry import open_address
from tests.conformance.test_checkpoints import *  # noqa: F403 - the cases, over another fixture
from tests.servers.served import SERVED

if TYPE_CHECKING:
    from omnirelay.testing.servers_nats import NatsServers
    from omnirelay.testing.servers_objects import ObjectServer

_numbers = count()


# It takes the place of the imported one.
@pytest.fixture(params=[*sorted(SERVED), "nats_one", "nats_three", "s3", "gs", "az"])  # type: ignore[no-redef]
async def store(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[CheckpointStore]:
    if request.param in SERVED:
        url = SERVED[request.param](request.getfixturevalue)
    elif request.param.startswith("nats"):
        servers: NatsServers = request.getfixturevalue(request.param)
        replicas = len(servers.servers)
        url = servers.url(f"C{next(_numbers)}", f"&replicas={replicas}")
    else:
        objects: ObjectServer = request.getfixturevalue(request.param)
        for name, value in objects.environment.items():
            monkeypatch.setenv(name, value)
        url = objects.url(f"c{next(_numbers)}")
    opened = open_address(url, "s")
    await opened.journal.open()
    await opened.journal.close()
    yield opened.checkpoints
    await opened.checkpoints.close()
