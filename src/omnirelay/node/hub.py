"""A node that keeps the journals of others: where each of their shards is kept."""

from collections.abc import Collection
from pathlib import Path
from urllib.parse import quote

from omnirelay.identity.settings import Identity
from omnirelay.journal.backend import JournalTarget
from omnirelay.journal.checkpoint import CheckpointStore
from omnirelay.mesh.hub import Hub
from omnirelay.model.errors import InvalidOption
from omnirelay.model.ports import Clock
from omnirelay.node.settings import NodeSettings
from omnirelay.stores.registry import open_address
from omnirelay.stores.sqlite import file_word

FOLDER = "hub"
"""In the data folder: one SQLite file for each shard, apart from this node's own queues."""


def open_hub(settings: NodeSettings, identity: Identity, clock: Clock) -> Hub:
    def open_shard(name: str) -> tuple[JournalTarget, CheckpointStore]:
        opened = open_address(settings.journal or _file(settings, name), name)
        return opened.journal, opened.checkpoints

    return Hub(open_shard, own=_own(settings), may=identity.policy.check, clock=clock)


def _own(settings: NodeSettings) -> Collection[str]:
    """Queues of this node in the same store as the shards of others."""
    namespaces = settings.all_namespaces().items()
    return [
        name
        for name, own in namespaces
        if settings.journal is not None and own.journal in (None, settings.journal)
    ]


def _file(settings: NodeSettings, shard: str) -> str:
    folder = Path(settings.data).absolute() / FOLDER
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidOption(f"data is {settings.data!r}: {error.strerror}") from error
    return f"sqlite:///{quote(str(folder / file_word(shard)))}.db"
