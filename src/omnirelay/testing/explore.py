"""Every interleaving of a small world, on the real core: our model checker.

Two workers, a handful of items, a few epochs. From every state that can be reached, each command
the world knows is tried, with tokens that are current and tokens that are not; a tick passes; the
node crashes and folds its journal again. Breadth first, so the first violation found is a shortest
one, and it is told as a scenario.

States that differ only in what nothing can ever depend on are one state: fences and lease ids
count by their rank, times by their distance from now, workers by what they know.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from omnirelay.lease.commands import (
    Command,
    Complete,
    Drain,
    Enqueue,
    Expire,
    Fail,
    Grant,
    Heartbeat,
    Release,
    Restore,
    StartEpoch,
)
from omnirelay.lease.decide import decide as real_decide
from omnirelay.lease.deciding_moves import from_item
from omnirelay.lease.evolve import evolve as real_evolve
from omnirelay.lease.invariants import violations
from omnirelay.lease.options import QueueOptions
from omnirelay.lease.records import Drained, Granted
from omnirelay.lease.state import QueueState
from omnirelay.model.errors import OmniRelayError
from omnirelay.model.items import Payload, PendingItem, Token, to_ms
from omnirelay.testing.folded import Decide, Entry, Evolve, Records, fold, numbered_lease_id
from omnirelay.testing.onlooker import Onlooker
from omnirelay.testing.scenario import INDENT
from omnirelay.testing.wording import record_lines

Hand = tuple[Token, ...]
"""Tokens a worker was given and still remembers, oldest first."""


@dataclass(frozen=True)
class Scope:
    """How small the world is. Every item is of the one resource `table/a`."""

    options: QueueOptions
    items: int = 2
    workers: int = 2
    epochs: int = 3
    depth: int = 9
    tick_ms: int = 50
    tokens_kept: int = 2
    moves: frozenset[str] = frozenset(
        {"lease", "heartbeat", "complete", "fail", "release", "expire", "restart", "drain"}
    )


@dataclass(frozen=True)
class Exploration:
    states: int
    transitions: int
    depth: int
    violation: str | None = None
    scenario: str | None = None
    """How to get there, shortest way."""


class Act(NamedTuple):
    """A line of the scenario and what it asks; no command: time passes."""

    words: str
    at: int
    command: Command | None = None
    worker: int = 0


class Node(NamedTuple):
    journal: tuple[Entry, ...]
    now: int
    hands: tuple[Hand, ...]
    file: tuple[PendingItem, ...]
    """What the operator drained last."""
    onlooker: Onlooker
    parent: "Node | None" = None
    act: Act | None = None


class Broken(Exception):
    def __init__(self, node: Node, why: str) -> None:
        super().__init__(why)
        self.node = node


class Explorer:
    def __init__(
        self, scope: Scope, *, decide: Decide = real_decide, evolve: Evolve = real_evolve
    ) -> None:
        self.scope = scope
        self.transitions = 0
        self._decide = decide
        self._evolve = evolve
        self._met: set[int] = set()

    def run(self) -> Exploration:
        depth = 0
        violation = scenario = None
        try:
            level = [self._root()]
            while level and depth < self.scope.depth:
                depth += 1
                level = [after for node in level for after in self._successors(node)]
        except Broken as broken:
            violation = str(broken)
            scenario = told(broken.node, self.scope, violation)
        return Exploration(len(self._met), self.transitions, depth, violation, scenario)

    def _root(self) -> Node:
        hands: tuple[Hand, ...] = ((),) * self.scope.workers
        node = Node((), 0, hands, (), Onlooker.fresh(self.scope.items))
        acts = [Act("restart", 0, StartEpoch(epoch=1, node="A", origin="A"))]
        enqueue = Enqueue(payload=Payload("table", "a"))
        acts += [Act("enqueue table/a", 0, enqueue)] * self.scope.items
        for act in acts:
            state = fold(node.journal, self._evolve)
            after = self._step(node, state, act)
            assert after is not None
            node = after
        return node

    def _successors(self, node: Node) -> Iterator[Node]:
        state = fold(node.journal, self._evolve)
        for act in moves(node, state, self.scope):
            self.transitions += 1
            after = self._step(node, state, act)
            if after is not None:
                yield after

    def _step(self, node: Node, state: QueueState, act: Act) -> Node | None:
        """The node after the act, if nobody has been there; raises Broken if it must not be."""
        if act.command is None:
            # A state of its own: items that ripen by then must not be ripe for the other moves.
            later = node._replace(now=act.at, parent=node, act=act)
            return self._arrive(later, fold(node.journal, self._evolve))
        refused: OmniRelayError | None = None
        records: Records = ()
        try:
            records = self._decide(state, act.command, act.at, self.scope.options)
        except OmniRelayError as error:
            refused = error
        is_taken = refused is None
        onlooker, complaint = node.onlooker.see(act.command, records, act.at, is_taken=is_taken)
        if not records and not complaint:
            return None
        after = node._replace(
            journal=node.journal + tuple((act.at, record) for record in records),
            hands=_taken(node.hands, act, records, self.scope.tokens_kept),
            file=_drained(records) or node.file,
            onlooker=onlooker,
            parent=node,
            act=act,
        )
        if complaint:
            raise Broken(after, complaint)
        try:
            changed = fold(after.journal, self._evolve)
        except (AssertionError, KeyError) as error:
            raise Broken(after, f"the journal cannot be folded: {error!r}") from error
        return self._arrive(after, changed)

    def _arrive(self, node: Node, state: QueueState) -> Node | None:
        state.ripen(node.now)
        mark = hash(fingerprint(node, state))
        if mark in self._met:
            return None
        self._met.add(mark)
        found = violations(state) + misplaced(state, self.scope.items)
        if found:
            raise Broken(node, found[0])
        return node


def explore(
    scope: Scope, *, decide: Decide = real_decide, evolve: Evolve = real_evolve
) -> Exploration:
    """All there is within `scope`, or the first violation. `decide` and `evolve` may be others, so
    that a planted bug can be shown to be found."""
    return Explorer(scope, decide=decide, evolve=evolve).run()


# -- what can happen ----------------------------------------------------------------------------


def moves(node: Node, state: QueueState, scope: Scope) -> Iterator[Act]:
    now = node.now
    yield Act("", now + scope.tick_ms)
    if "lease" in scope.moves:
        fence = state.next_fence()
        for worker in range(scope.workers):
            grant = Grant(lease_id=numbered_lease_id(fence), principal=_name(worker))
            yield Act(f"lease {_name(worker)} as=f{fence}", now, grant, worker)
    for worker, hand in enumerate(node.hands):
        for token in hand:
            yield from _uses(token, _name(worker), now, scope.moves)
    if "expire" in scope.moves:
        yield Act("expire", now, Expire(limit=1000))
    if "restart" in scope.moves and state.epoch < scope.epochs:
        yield Act("restart", now, StartEpoch(epoch=state.epoch + 1, node="A", origin="A"))
    if "drain" in scope.moves:
        yield Act("drain as=file", now, Drain(max_items=1000))
        yield Act("drain active dead as=file", now, _DRAIN_ALL)
        if node.file:
            yield Act("restore file", now, Restore(items=node.file))


def _uses(token: Token, by: str, now: int, allowed: frozenset[str]) -> Iterator[Act]:
    name = f"f{token.fence}"
    if "complete" in allowed:
        yield Act(f"complete {name}", now, Complete(token=token, principal=by))
    if "heartbeat" in allowed:
        yield Act(f"heartbeat {name}", now, Heartbeat(tokens=(token,), principal=by))
    if "release" in allowed:
        yield Act(f"release {name}", now, Release(token=token, principal=by))
    if "fail" in allowed:
        yield Act(f"fail {name}", now, Fail(token=token, principal=by))


_DRAIN_ALL = Drain(max_items=1000, include_active=True, include_dead=True)


def _name(worker: int) -> str:
    return f"w{worker + 1}"


def _taken(hands: tuple[Hand, ...], act: Act, records: Records, most: int) -> tuple[Hand, ...]:
    if not records or not isinstance(records[0], Granted):
        return hands
    grant = records[0]
    token = Token(grant.sequence_id, grant.attempt, grant.lease_id, grant.fence)
    hand = (*hands[act.worker], token)[-most:]
    return (*hands[: act.worker], hand, *hands[act.worker + 1 :])


def _drained(records: Records) -> tuple[PendingItem, ...]:
    if not records or not isinstance(records[0], Drained):
        return ()
    return tuple(from_item(item) for item in records[0].items)


def misplaced(state: QueueState, items: int) -> list[str]:
    """Every item is in one place: waiting, held, dead, drained or done."""
    places = (state.pending, state.active, state.dead, state.drained)
    done = {sequence_id for _, sequence_id, _ in state.finished.items()}
    count = {i: sum(i in place for place in (*places, done)) for i in range(1, state.last_id + 1)}
    return [f"item {i} is in {n} places" for i, n in count.items() if n != 1 and i <= items]


# -- which states are the same ------------------------------------------------------------------


def fingerprint(node: Node, state: QueueState) -> tuple[object, ...]:
    """Equal for two states exactly if the same things can happen from both on. What stands in
    `image.facts` is here, but for the absolute values of times, fences and lease ids."""
    now = node.now
    fences = {token.fence or 0 for hand in node.hands for token in hand}
    fences.update(held.fence for held in state.active.values())
    fences.update(node.onlooker.fences())
    things = [*state.pending.values(), *(dead.item for dead in state.dead.values())]
    fences.update(t.last_token.fence or 0 for t in things if t.last_token is not None)
    kept = [i.last_ownership_token for i in node.file]
    fences.update(token.fence or 0 for token in kept if token is not None)
    rank = {fence: place for place, fence in enumerate(sorted(fences))}
    hands = sorted(
        (tuple(rank[t.fence or 0] for t in hand), w) for w, hand in enumerate(node.hands)
    )
    seat = {_name(worker): place for place, (_, worker) in enumerate(hands)}
    deadlines = sorted(
        (held.expires_at, sequence_id, rank[held.fence], seat[held.principal])
        for sequence_id, held in state.active.items()
    )
    return (
        tuple(hand for hand, _ in hands),
        tuple(
            (i.sequence_id, i.attempt, max(0, i.available_at - now), _last(i.last_token, rank))
            for i in things
        ),
        tuple(item.sequence_id for item in state.lanes),
        len(state.dead),
        tuple((max(0, at - now), *rest) for at, *rest in deadlines),
        tuple(
            (i, rank.get(int(lease.replace("-", ""), 16))) for _, i, lease in state.finished.items()
        ),
        tuple(state.drained),
        state.epoch,
        tuple(
            (
                i.sequence_id,
                i.attempt,
                i.dead_letter,
                _last(i.last_ownership_token, rank),
                0 if i.available_at is None else max(0, to_ms(i.available_at) - now),
            )
            for i in node.file
        ),
        node.onlooker.relative(now, rank),
    )


def _last(token: Token | None, rank: dict[int, int]) -> int:
    return -1 if token is None else rank[token.fence or 0]


# -- telling it ---------------------------------------------------------------------------------


def told(node: Node, scope: Scope, why: str) -> str:
    """The way to `node` as a scenario that can be played again."""
    steps: list[Node] = []
    at: Node | None = node
    while at is not None and at.parent is not None:
        steps.append(at)
        at = at.parent
    default = QueueOptions()
    changed = [
        f"{name}={getattr(scope.options, name)}"
        for name in QueueOptions.__struct_fields__
        if getattr(scope.options, name) != getattr(default, name)
    ]
    lines = [f"# {why}", " ".join(["options", *changed]), ""]
    for step in steps[-2::-1]:  # the first one is the epoch that every scenario starts with
        if step.act is not None and step.act.command is not None and step.parent is not None:
            lines.append(f"@{step.act.at} {step.act.words}")
            for _, record in step.journal[len(step.parent.journal) :]:
                lines += [INDENT + line for line in record_lines(record)]
    return "\n".join(lines) + "\n"
