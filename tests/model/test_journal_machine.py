"""Every journal store against a Python list: appends, rivals, crashes, snapshots, pruning.

Two handles and a reader look at one storage; after every step all of them must tell what the list
tells.
"""

import asyncio
import os
import tempfile
from bisect import bisect_right
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from omnirelay.journal.backend import Head, JournalBackend, JournalReader, SnapshotRef
from omnirelay.journal.format import Sealed
from omnirelay.model.errors import Corrupt, Fenced, SequenceTaken
from omnirelay.model.ports import set_failpoint
from omnirelay.testing import figures
from omnirelay.testing.envelopes import Scribe, scan
from omnirelay.testing.store_suite import SHARD, Medium
from tests.conformance.storages import MemoryStorage, SqliteStorage

T = TypeVar("T")
SETTINGS = settings(
    max_examples=100, stateful_step_count=50, suppress_health_check=list(HealthCheck)
)
# Syncs to a disk would be most of the time, and a disk that fails is tested elsewhere.
FAST_FOLDER = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
handles = st.sampled_from("ab")
counts = st.integers(1, 4)
places = st.integers(0, 30)
times = st.sampled_from([0, 10, 10, 100, -100])
"""Steps of the clock; a journal must bear one that goes back."""


class Died(Exception):
    pass


class JournalMachine(RuleBasedStateMachine):
    make: ClassVar[Callable[[Path], Medium]]
    steps: ClassVar[int]

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.folder = tempfile.TemporaryDirectory(dir=FAST_FOLDER)
        self.medium = type(self).make(Path(self.folder.name))
        self.handles: dict[str, JournalBackend] = {name: self.opened() for name in "ab"}
        self.reader: JournalReader = self.handles["a"].reader()
        self.kept: list[Sealed] = []
        self.pruned = 0
        """Everything up to this sequence is gone."""
        self.scribe = Scribe(SHARD)
        self.finished: tuple[SnapshotRef, list[bytes]] | None = None
        self.unfinished: tuple[int, list[bytes]] | None = None

    def teardown(self) -> None:
        for reader in (*self.handles.values(), self.reader):
            self.run(reader.close())
        self.loop.close()
        self.folder.cleanup()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(work)

    def opened(self) -> JournalBackend:
        handle = self.medium.handle()
        self.run(handle.open())
        return handle

    def append(self, name: str, sealed: Sealed) -> None:
        self.run(self.handles[name].append(sealed, expected=sealed.first - 1))

    # -- writing --------------------------------------------------------------------------------

    @rule(name=handles, count=counts, rise=st.sampled_from([0, 0, 0, 1, 3]), later=times)
    def append_what_follows(self, name: str, count: int, rise: int, later: int) -> None:
        self.scribe.epoch += rise
        sealed = self.scribe.seal(count, time=max(0, self.scribe.time + later))
        self.append(name, sealed)
        self.kept.append(sealed)

    @precondition(lambda self: self.kept)
    @rule(name=handles, count=counts, lower=st.integers(1, 2), back=st.integers(0, 5))
    def append_from_a_past_epoch(self, name: str, count: int, lower: int, back: int) -> None:
        late = self.scribe.rival(epoch=self.kept[-1].epoch - lower)
        late.last = max(0, late.last - back)
        with pytest.raises(Fenced):
            self.append(name, late.seal(count))

    @precondition(lambda self: self.kept)
    @rule(name=handles, count=counts, off=st.sampled_from([-4, -2, -1, 1, 2]))
    def append_at_another_place(self, name: str, count: int, off: int) -> None:
        stray = self.scribe.rival(epoch=self.scribe.epoch + 1)
        stray.last += off
        if stray.last >= 0:
            with pytest.raises(SequenceTaken):
                self.append(name, stray.seal(count))

    @rule(count=counts, first=handles)
    def two_writers_take_over_at_once(self, count: int, first: str) -> None:
        second = "b" if first == "a" else "a"
        loser = self.scribe.rival(epoch=self.scribe.epoch + 1).seal(count + 1)
        self.append_what_follows(first, count, 1, 0)
        with pytest.raises(SequenceTaken):
            self.append(second, loser)

    @rule(count=counts, point=st.integers(0, 3))
    def die_while_appending(self, count: int, point: int) -> None:
        rival = self.scribe.rival()
        sealed = rival.seal(count)
        self.die_at(point, sealed)
        self.handles["a"] = self.opened()
        if self.run(self.handles["a"].head()).last == sealed.last:
            self.scribe = rival
            self.kept.append(sealed)

    def die_at(self, point: int, sealed: Sealed) -> None:
        passed: list[str] = []

        def die(name: str) -> None:
            passed.append(name)
            if len(passed) > point:
                raise Died

        set_failpoint(die)
        try:
            self.append("a", sealed)
        except Died:
            pass
        finally:
            set_failpoint(None)
        self.run(self.handles["a"].close())

    # -- handles --------------------------------------------------------------------------------

    @rule(name=handles)
    def open_again(self, name: str) -> None:
        self.run(self.handles[name].open())

    @rule(name=handles)
    def take_a_new_handle(self, name: str) -> None:
        self.run(self.handles[name].close())
        self.handles[name] = self.opened()

    @rule(name=handles)
    def take_a_new_reader(self, name: str) -> None:
        self.run(self.reader.close())
        self.reader = self.handles[name].reader()

    # -- reading --------------------------------------------------------------------------------

    @rule(name=st.sampled_from("abr"), after=places, limit=st.integers(1, 5))
    def read(self, name: str, after: int, limit: int) -> None:
        after += max(0, self.pruned - 3)
        source = self.reader if name == "r" else self.handles[name]
        if after < self.pruned:
            with pytest.raises(Corrupt) as caught:
                self.run(source.read(after, limit))
            assert caught.value.sequence == after + 1
            return
        wanted = [sealed.body for sealed in self.kept if sealed.last > after]
        assert self.run(source.read(after, limit)) == wanted[:limit]

    @rule(name=st.sampled_from("abr"))
    def read_it_all(self, name: str) -> None:
        source = self.reader if name == "r" else self.handles[name]
        found = self.run(scan(source, SHARD, after=self.pruned))
        assert [envelope.first for envelope in found] == [sealed.first for sealed in self.kept]

    # -- snapshots ------------------------------------------------------------------------------

    @precondition(lambda self: self.kept)
    @rule(name=handles, body=st.binary(max_size=40))
    def begin_a_snapshot(self, name: str, body: bytes) -> None:
        sequence = self.kept[-1].last
        if self.finished is None or sequence > self.finished[0].sequence:
            self.run(self.handles[name].write_part(sequence, 0, body))
            self.unfinished = (sequence, [body])

    @precondition(lambda self: self.unfinished)
    @rule(name=handles, body=st.binary(max_size=40))
    def write_a_part(self, name: str, body: bytes) -> None:
        assert self.unfinished is not None
        sequence, parts = self.unfinished
        self.run(self.handles[name].write_part(sequence, len(parts), body))
        parts.append(body)

    @precondition(lambda self: self.unfinished)
    @rule(name=handles, link=st.sampled_from(["l1", "l2"]))
    def finish_a_snapshot(self, name: str, link: str) -> None:
        assert self.unfinished is not None
        sequence, parts = self.unfinished
        ref = SnapshotRef(sequence, self.scribe.epoch, link, 7, len(parts), "sum")
        self.run(self.handles[name].finish_snapshot(ref))
        self.finished, self.unfinished = (ref, parts), None

    @rule(name=handles)
    def read_the_snapshot(self, name: str) -> None:
        handle = self.handles[name]
        ref = self.run(handle.snapshot())
        if self.finished is None:
            assert ref is None
            return
        wanted, parts = self.finished
        assert ref == wanted
        assert [
            self.run(handle.read_part(wanted.sequence, n)) for n in range(wanted.parts)
        ] == parts

    # -- pruning --------------------------------------------------------------------------------

    @rule(name=handles, through=places, age=places, limit=st.integers(1, 4))
    def prune(self, name: str, through: int, age: int, limit: int) -> None:
        through += self.pruned
        before = self.kept[age % len(self.kept)].time if self.kept else 0
        lasts = [sealed.last for sealed in self.kept]
        gone = 0
        for sealed in self.kept[: min(limit, bisect_right(lasts, through), len(lasts) - 1)]:
            if sealed.time > before:
                break
            gone += 1
        pruned = self.run(self.handles[name].prune(through, before_ms=before, limit=limit))
        assert pruned == max(0, gone)
        if gone:
            self.pruned = self.kept[gone - 1].last
            del self.kept[:gone]

    # -- always ---------------------------------------------------------------------------------

    @invariant()
    def everybody_knows_both_ends(self) -> None:
        type(self).steps += 1
        head = Head()
        if self.kept:
            last = self.kept[-1]
            head = Head(last.last, last.epoch, last.checksum, last.time)
        for source in (*self.handles.values(), self.reader):
            assert self.run(source.head()) == head
            assert self.run(source.first()) == self.pruned + 1


def memory(folder: Path) -> Medium:
    return MemoryStorage()


@pytest.mark.parametrize("make", [memory, SqliteStorage], ids=["memory", "sqlite"])
@pytest.mark.timeout(60)
def test_a_store_and_a_list_cannot_be_told_apart(make: Callable[[Path], Medium]) -> None:
    class Machine(JournalMachine):
        pass

    machine: type[JournalMachine] = Machine
    machine.make, machine.steps = staticmethod(make), 0
    run_state_machine_as_test(machine, settings=SETTINGS)
    figures.record("model", machines=1, steps=machine.steps, bugs=0)
