"""The journal on an object store behaves as every journal does: on S3, on Google's, on Azure's."""

from itertools import count
from pathlib import Path

import pytest

from omnirelay.model.errors import InvalidOption
from omnirelay.stores.objects_address import open_bucket
from omnirelay.testing.servers_objects import ObjectServer
from omnirelay.testing.store_suite import JournalSuite, Medium
from tests.conformance.object_storage import ObjectStorage

_numbers = count()


class TestS3(JournalSuite):
    @pytest.fixture(autouse=True)
    def _on(self, s3: ObjectServer, monkeypatch: pytest.MonkeyPatch) -> None:
        for name, value in s3.environment.items():
            monkeypatch.setenv(name, value)
        self.url = s3.url(f"p{next(_numbers)}")

    def make_medium(self, folder: Path) -> Medium:
        return ObjectStorage(self.url)


class TestGoogle(JournalSuite):
    @pytest.fixture(autouse=True)
    def _on(self, gs: ObjectServer, monkeypatch: pytest.MonkeyPatch) -> None:
        for name, value in gs.environment.items():
            monkeypatch.setenv(name, value)
        self.url = gs.url(f"p{next(_numbers)}")

    def make_medium(self, folder: Path) -> Medium:
        return ObjectStorage(self.url)


class TestAzure(JournalSuite):
    @pytest.fixture(autouse=True)
    def _on(self, az: ObjectServer, monkeypatch: pytest.MonkeyPatch) -> None:
        for name, value in az.environment.items():
            monkeypatch.setenv(name, value)
        self.url = az.url(f"p{next(_numbers)}")

    def make_medium(self, folder: Path) -> Medium:
        return ObjectStorage(self.url)


async def test_azure_with_another_key_is_refused_and_says_so(
    az: ObjectServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in az.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", "bm90IGl0")
    bucket = open_bucket(az.url("other"))
    with pytest.raises(InvalidOption, match="correct the credentials"):
        await bucket.prepare("orders")
