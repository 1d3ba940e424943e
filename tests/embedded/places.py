"""Where a test of the API has its queue: in memory, in a file, or behind a node."""

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import omnirelay
from omnirelay import QueueOptions, SyncRelay
from omnirelay.sdk.connect import Connecting
from omnirelay.testing.node_process import WIRES, node_thread, settings_of
from tests.embedded.signals import QUICK

EMBEDDED = ("memory", "sqlite")
ONE_WIRE = (*EMBEDDED, "stream")
EVERYWHERE = (*EMBEDDED, *WIRES)


class Place:
    """Where one test has its queue. Connecting to a wire starts a node with those options; later
    connections go to the same one."""

    def __init__(self, name: str, folder: Path, closing: ExitStack) -> None:
        self._name = name
        self._folder = folder
        self._closing = closing
        self._nodes: dict[str, str] = {}

    @property
    def is_remote(self) -> bool:
        return self._name in WIRES

    def url(self, file: str = "leases", options: QueueOptions | None = None) -> str:
        """Another `file` is another queue of the same kind."""
        if self._name == "memory":
            return "memory:"
        if self._name == "sqlite":
            return f"sqlite:///{self._folder}/{file}.db"
        found = self._nodes.get(file)
        if found is None:
            settings = settings_of((self._name,), "memory:", options or QUICK)
            node = self._closing.enter_context(node_thread(settings))
            found = self._nodes[file] = node.urls[self._name]
        return found

    def connect(
        self, file: str = "leases", *, options: QueueOptions | None = None, **settings: Any
    ) -> Connecting:
        if self.is_remote:
            return omnirelay.connect(self.url(file, options), **settings)
        return omnirelay.connect(self.url(file), options=options, **settings)

    def connect_sync(self, *, options: QueueOptions | None = None, **settings: Any) -> SyncRelay:
        if self.is_remote:
            return omnirelay.connect_sync(self.url(options=options), **settings)
        return omnirelay.connect_sync(self.url(), options=options, **settings)
