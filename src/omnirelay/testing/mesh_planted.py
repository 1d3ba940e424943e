"""Bugs to plant in ownership and forwarding, so that the simulated mesh can show it finds them.

As in `omnirelay.testing.planted`, each is what a tired developer might write, and lives as long as
its `with` block.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from unittest.mock import patch

import msgspec

from omnirelay.journal.format import Sealed, unseal
from omnirelay.journal.writer import Writer
from omnirelay.mesh import forwarding
from omnirelay.mesh.following import Following
from omnirelay.mesh.forwarding import Forwarding
from omnirelay.mesh.office import Office, Won
from omnirelay.mesh.refusal import read_only
from omnirelay.mesh.shard import Shard
from omnirelay.mesh.term import Term
from omnirelay.mesh.turn import Turn
from omnirelay.model.errors import Fenced, OmniRelayError
from omnirelay.rpc.headers import FORWARDED
from omnirelay.rpc.meta import Reply, Request
from omnirelay.rpc.procedure import Handler, Procedure
from omnirelay.stores.memory import MemoryJournal
from omnirelay.testing.planted import PLANTS as OTHERS


@contextmanager
def _split_brain() -> Iterator[None]:
    """A writer asks the journal where it ends and in which epoch, and goes on from there."""
    append = Writer.append

    async def bold(self: Writer, sealed: Sealed) -> None:
        head = await self._backend.head()
        meant = unseal(sealed.body, shard=sealed.shard, at=sealed.first)
        self._identity = (sealed.shard, max(sealed.epoch, head.epoch), meant.node)
        self.last = self._sealed_last = head.last
        self.link = self._sealed_link = head.checksum
        again = self.seal(list(meant.records), (meant.pending, meant.active), sealed.time)
        await append(self, again)

    with patch.object(Writer, "append", bold):
        yield


@contextmanager
def _unconditional_store() -> Iterator[None]:
    """The store takes what it is given, whoever gives it and whatever it expects."""

    async def take(self: MemoryJournal, sealed: Sealed, *, expected: int) -> None:
        self.medium.envelopes.append(sealed)
        self.medium.lasts.append(sealed.last)

    with patch.object(MemoryJournal, "append", take):
        yield


@contextmanager
def _unread_tail() -> Iterator[None]:
    """A new owner goes on from the journal's end, not from what it has read of it."""
    win = Office._win

    async def eager(self: Office, following: Following) -> Won:
        head = await self._backend.head()
        chain, state = following._chain, following.state
        chain.last, chain.link, chain.epoch = head.last, head.checksum, head.epoch
        state.sequence, state.epoch = head.last, head.epoch
        return await win(self, following)

    with patch.object(Office, "_win", eager):
        yield


@contextmanager
def _follower_reads() -> Iterator[None]:
    """Whoever is asked answers reads, from what it has seen so far."""

    def read(self: Shard, command: object) -> object:
        return read_only(self.state, command, self.now_ms(), self._options.queue)

    here = forwarding._HERE | {"stats"}
    with patch.object(forwarding, "_HERE", here), patch.object(Shard, "_read", read):
        yield


@contextmanager
def _owner_never_looks() -> Iterator[None]:
    """An owner with nothing to write never finds out that it has been replaced."""

    def nothing(self: Term, turn: Turn) -> None:
        return None

    with patch.object(Term, "affirm", nothing), patch.object(Term, "_must_write_at", _never):
        yield


def _never(term: Term) -> int:
    return 1 << 60


@contextmanager
def _forward_loop() -> Iterator[None]:
    """A call that was passed on is passed on again."""
    call = Forwarding.__call__

    async def forgetful(
        self: Forwarding, request: Request, procedure: Procedure, next_: Handler
    ) -> Reply:
        headers = {n: v for n, v in request.meta.headers.items() if n != FORWARDED}
        meta = msgspec.structs.replace(request.meta, headers=headers)
        return await call(self, msgspec.structs.replace(request, meta=meta), procedure, next_)

    with patch.object(Forwarding, "__call__", forgetful):
        yield


@contextmanager
def _lost_in_hand_over() -> Iterator[None]:
    """An owner that was replaced forgets who was waiting for it."""
    step_down = Shard._step_down

    def forget(self: Shard, error: OmniRelayError) -> None:
        if isinstance(error, Fenced):
            self._inbox.clear()
        step_down(self, error)

    with patch.object(Shard, "_step_down", forget):
        yield


PLANTS: dict[str, Callable[[], AbstractContextManager[None]]] = {
    "split_brain": _split_brain,
    "unconditional_store": _unconditional_store,
    "unread_tail": _unread_tail,
    "follower_reads": _follower_reads,
    "owner_never_looks": _owner_never_looks,
    "forward_loop": _forward_loop,
    "lost_in_hand_over": _lost_in_hand_over,
    "ack_before_append": OTHERS["ack_before_append"],
    "no_fresh_time": OTHERS["no_fresh_time"],
    "no_fencing": OTHERS["no_fencing"],
}


@contextmanager
def plant_mesh_bug(name: str | None) -> Iterator[None]:
    """Raises KeyError for a bug that nobody has written."""
    if name is None:
        yield
        return
    with PLANTS[name]():
        yield
