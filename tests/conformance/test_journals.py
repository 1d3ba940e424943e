"""Every journal store behaves as one. What only one product has is tested in its own file."""

from pathlib import Path

from omnirelay.testing.store_suite import JournalSuite, Medium
from tests.conformance.object_storage import ObjectStorage
from tests.conformance.storages import MemoryStorage, SqliteStorage


class TestMemoryJournal(JournalSuite):
    def make_medium(self, folder: Path) -> Medium:
        return MemoryStorage()


class TestSqliteJournal(JournalSuite):
    def make_medium(self, folder: Path) -> Medium:
        return SqliteStorage(folder)


class TestFiles(JournalSuite):
    def make_medium(self, folder: Path) -> Medium:
        return ObjectStorage(f"file://{folder}/journals")
