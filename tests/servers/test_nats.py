"""The journal on NATS JetStream behaves as every journal does, on one server and on three."""

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from omnirelay.sdk.threads import LoopThread
from omnirelay.testing.servers_nats import NatsServers
from omnirelay.testing.store_suite import JournalSuite, Medium
from tests.servers.nats_storage import NatsStorage

_numbers = count()


@pytest.fixture(scope="module")
def aside() -> Iterator[LoopThread]:
    thread = LoopThread("behind-the-store")
    yield thread
    thread.stop()


class TestNatsJournal(JournalSuite):
    @pytest.fixture(autouse=True)
    def _on(self, nats_one: NatsServers, aside: LoopThread) -> None:
        self.url, self.aside = nats_one.url(f"S{next(_numbers)}"), aside

    def make_medium(self, folder: Path) -> Medium:
        return NatsStorage(self.url, self.aside)


class TestNatsJournalOnThreeServers(JournalSuite):
    @pytest.fixture(autouse=True)
    def _on(self, nats_three: NatsServers, aside: LoopThread) -> None:
        self.url = nats_three.url(f"S{next(_numbers)}", "&replicas=3")
        self.aside = aside

    def make_medium(self, folder: Path) -> Medium:
        return NatsStorage(self.url, self.aside)
