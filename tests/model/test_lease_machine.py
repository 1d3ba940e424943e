"""The real core against a queue of plain lists, over two queues that move work to each other.

Besides the answers and the facts, which must agree after every step, it is shown that the journal
alone gives the state (refold), that a snapshot does (thaw), that whoever follows the records from
any moment on ends up with the same facts, and that looking changes nothing.
"""

from collections import Counter
from typing import ClassVar

import msgspec
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from omnirelay.lease import commands
from omnirelay.lease.options import QueueOptions, SerializeBy
from omnirelay.model.items import Payload, Token
from omnirelay.testing import figures
from omnirelay.testing.folded import numbered_lease_id
from tests.model.pair import File, Pair

SETTINGS = settings(
    max_examples=250, stateful_step_count=50, suppress_health_check=list(HealthCheck)
)

queues = st.sampled_from("AAAAB")
workers = st.sampled_from(["w1", "w2"])
requests = st.sampled_from([None, None, None, "r1", "r2", "c.1", "c.2", "c.3"])
thieves = st.sampled_from([None, None, None, "eve"])
picks = st.integers(0, 11)
"""Which token: the lower half names one that is held now, the upper half any that ever was."""
delays = st.sampled_from([None, None, 0, 70])
endings = st.sampled_from(["keep", "keep", "complete", "fail", "bury", "release", "beat"])
upsets = st.sampled_from(
    ["restart", "snapshot", "fold_again", "follow", "look", "restart_otherwise"]
)
orders = st.builds(
    commands.Enqueue,
    payload=st.builds(
        Payload,
        resource_type=st.sampled_from("ab"),
        resource_id=st.sampled_from("12"),
        partition_key=st.sampled_from([None, "p"]),
        request_id=requests,
    ),
    delay_ms=st.sampled_from([0, 0, 0, 100, 250]),
    priority=st.sampled_from([0, 0, 0, 5, -1]),
    max_attempts=st.sampled_from([None, None, 1, 3]),
    lease_duration_ms=st.sampled_from([None, 150]),
)
asks = st.builds(
    commands.Grant,
    lease_id=st.just(""),
    principal=workers,
    resource_types=st.sampled_from([None, None, None, ("a",), ("b", "a")]),
    request_id=requests,
    lease_duration_ms=st.sampled_from([None, None, 500]),
)


class LeaseMachine(RuleBasedStateMachine):
    steps: ClassVar[int] = 0
    outcomes: ClassVar[Counter[str]] = Counter()

    files: Bundle[File] = Bundle("files")

    def __init__(self) -> None:
        super().__init__()
        self.now = 1000
        self.leases = 0
        self.tokens: list[tuple[Token, str]] = []
        self.pairs: dict[str, Pair] = {}

    @initialize(
        serialize_by=st.sampled_from(SerializeBy),
        is_tight=st.booleans(),
        first=st.lists(orders, min_size=4, max_size=8),
    )
    def open(
        self, serialize_by: SerializeBy, is_tight: bool, first: list[commands.Enqueue]
    ) -> None:
        options = QueueOptions(
            serialize_by=serialize_by,
            capacity=4 if is_tight else 100,
            pending_high=4 if is_tight else None,
            pending_low=1 if is_tight else None,
            lease_duration_ms=300,
            max_attempts=2,
            requeue_delay_ms=100,
            requeue_delay_max_ms=150,
            requeue_jitter=0.0,
            dedupe_window_ms=400,
            dedupe_entries=2,
            finished_entries=2,
        )
        self.pairs = {name: Pair(name, options, LeaseMachine.outcomes) for name in "AB"}
        for order in first:
            self.pairs["A"].enqueue(order, self.now)

    # -- work ---------------------------------------------------------------------------------

    @rule(name=queues, drawn=st.lists(orders, min_size=1, max_size=4))
    def enqueue(self, name: str, drawn: list[commands.Enqueue]) -> None:
        for order in drawn:
            self.pairs[name].enqueue(order, self.now)

    @rule(name=queues, ask=asks, drawn=st.lists(endings, min_size=1, max_size=4))
    def work(self, name: str, ask: commands.Grant, drawn: list[str]) -> None:
        """A worker takes items one after another and does something with each."""
        for ending in drawn:
            self.leases += 1
            grant = msgspec.structs.replace(ask, lease_id=numbered_lease_id(self.leases))
            token = self.pairs[name].lease(grant, self.now)
            if token is None:
                return
            self.tokens.append((token, ask.principal))
            self.end(name, token, ask.principal, ending)

    def end(self, name: str, token: Token, by: str, ending: str) -> None:
        pair, now = self.pairs[name], self.now
        if ending == "complete":
            pair.complete(token, by, now)
        elif ending == "release":
            pair.release(token, by, now)
        elif ending == "beat":
            pair.heartbeat(token, by, now)
        elif ending in ("fail", "bury"):
            requeue = ending == "fail"
            pair.fail(commands.Fail(token=token, principal=by, requeue=requeue, reason="x"), now)

    # -- what is done with a token, fresh or stale --------------------------------------------

    def token(self, name: str, pick: int) -> tuple[Token, str]:
        held = {(hold.thing.id, hold.fence) for hold in self.pairs[name].model.held}
        fresh = [one for one in self.tokens if (one[0].sequence_id, one[0].fence) in held]
        some = fresh if fresh and pick < 6 else self.tokens
        return some[-1 - pick % len(some)]

    @precondition(lambda self: self.tokens)
    @rule(name=queues, pick=picks, thief=thieves)
    def heartbeat(self, name: str, pick: int, thief: str | None) -> None:
        token, holder = self.token(name, pick)
        self.pairs[name].heartbeat(token, thief or holder, self.now)

    @precondition(lambda self: self.tokens)
    @rule(name=queues, pick=picks, thief=thieves, is_forged=st.sampled_from([False, False, True]))
    def complete(self, name: str, pick: int, thief: str | None, is_forged: bool) -> None:
        token, holder = self.token(name, pick)
        if is_forged:
            token = msgspec.structs.replace(token, fence=1)
        self.pairs[name].complete(token, thief or holder, self.now)

    @precondition(lambda self: self.tokens)
    @rule(name=queues, pick=picks, delay=delays, requeue=st.booleans())
    def fail(self, *, name: str, pick: int, delay: int | None, requeue: bool) -> None:
        token, by = self.token(name, pick)
        command = commands.Fail(
            token=token, principal=by, delay_ms=delay, requeue=requeue, reason="x"
        )
        self.pairs[name].fail(command, self.now)

    @precondition(lambda self: self.tokens)
    @rule(name=queues, pick=picks)
    def release(self, name: str, pick: int) -> None:
        token, by = self.token(name, pick)
        self.pairs[name].release(token, by, self.now)

    # -- what operators do --------------------------------------------------------------------

    # Only where there is plenty, or else nothing would be left to work on.
    @precondition(lambda self: any(len(p.model.arrivals) > 2 for p in self.pairs.values()))
    @rule(
        target=files,
        name=queues,
        most=st.integers(1, 3),
        active=st.sampled_from([False, False, True]),
        dead=st.booleans(),
    )
    def drain(self, *, name: str, most: int, active: bool, dead: bool) -> File:
        command = commands.Drain(max_items=most, include_active=active, include_dead=dead)
        return self.pairs[name].drain(command, self.now)

    @rule(name=queues, file=files)
    def restore(self, name: str, file: File) -> None:
        self.pairs[name].restore(file, self.now)

    @rule(name=queues, pick=st.integers(0, 1), purge=st.sampled_from([False, False, True]))
    def redrive_or_purge(self, name: str, pick: int, purge: bool) -> None:
        pair = self.pairs[name]
        ids = tuple(thing.id for thing in pair.model.dead)[pick : pick + 2]
        if ids:
            (pair.purge if purge else pair.redrive)(ids, self.now)

    # -- time, crashes, onlookers -------------------------------------------------------------

    @rule(ms=st.sampled_from([1, 49, 50, 100, 150]))
    def wait(self, ms: int) -> None:
        self.now += ms

    @rule(name=queues, ms=st.sampled_from([0, 50, 150, 300, 500]))
    def expire(self, name: str, ms: int) -> None:
        self.now += ms
        self.pairs[name].expire(self.now)

    @rule(name=queues, what=upsets)
    def upset(self, name: str, what: str) -> None:
        """One rule for all of these, so that they do not outnumber the work."""
        getattr(self.pairs[name], what)(self.now)

    @invariant()
    def both_agree(self) -> None:
        LeaseMachine.steps += 1
        for pair in self.pairs.values():
            pair.check_facts()
            pair.check_followers()


@pytest.mark.timeout(120)
def test_the_core_agrees_with_a_queue_of_plain_lists() -> None:
    run_state_machine_as_test(LeaseMachine, settings=SETTINGS)
    figures.record("model", machines=1, steps=LeaseMachine.steps, bugs=0)
    never = {
        *("enqueued", "duplicate", "QueueFull", "Backpressure", "granted", "again", "until"),
        *("completed", "requeued", "dead", "released", "expired", "restored", "redriven"),
        *("StaleToken", "NotHolder", "UnknownToken", "SequenceConflict"),
    } - set(+LeaseMachine.outcomes)
    assert not never, f"the machine never came to {never}"
