"""Who may write, and whose token counts: a model of ownership and fencing.

Nodes share one journal with a conditional append. Messages to it may be late, lost or doubled,
their answers lost; nodes may stand still, crash and come back. `search.py` beside this file tries
everything that can happen; README.md says what is modelled, what is not, and why.
"""

from collections.abc import Iterator
from typing import NamedTuple

ACTIONS = {
    "reads to the end": "omnirelay.mesh.following:Following.catch_up",
    "tries an epoch": "omnirelay.mesh.office:Office._win",
    "decides": "omnirelay.lease.decide:decide",
    "whose token counts": "omnirelay.lease.decide:held_by",
    "sends": "omnirelay.journal.writer:Writer.append",
    "comes to the journal": "omnirelay.journal.backend:JournalBackend.append",
    "hears that its epoch has begun": "omnirelay.mesh.shard:Shard._take_office",
    "hears that it is in the journal": "omnirelay.mesh.term:Term.commit",
    "steps down": "omnirelay.mesh.shard:Shard._step_down",
    "crashes, and comes back": "omnirelay.mesh.recovery:recover",
}
"""The code that each action stands for. A test finds every one of them."""

MUTATIONS = {
    "no_sequence_check": "the store does not ask where the sender thinks the journal ends",
    "no_epoch_check": "a refused owner reads on and tries again, and no store asks for its epoch",
    "same_epoch": "a new owner goes on in the epoch of the old one",
    "answer_before_append": "a caller hears yes when the append is sent",
    "no_fence": "whoever has ever held an item may complete it",
    "unread_tail": "a new owner knows where the journal ends, and not all that it says",
    "no_take_over": "nobody tries where somebody has owned the journal",
}


class Scope(NamedTuple):
    nodes: int = 2
    items: int = 1
    epochs: int = 3
    records: int = 4
    """Beside those that begin an epoch."""
    waiting: int = 1
    """Items that were handed in before."""
    strays: int = 1
    """Messages under way that nobody waits for any more."""
    is_stubborn: bool = False
    """A refused owner reads on and tries again in its epoch, instead of stepping down."""
    mutation: str = ""


class Record(NamedTuple):
    kind: str
    """epoch, enqueue, grant, expire or complete."""
    item: int = 0
    fence: int = 0


class Entry(NamedTuple):
    """A record as it stands in the journal, or as its sender thinks it does."""

    epoch: int
    node: int
    record: Record


class Message(NamedTuple):
    expected: int
    entry: Entry


class Node(NamedTuple):
    """A follower knows nothing that matters: what it has read is there to be read again."""

    epoch: int = 0
    """The one it owns or tries to own; 0: it follows."""
    log: tuple[Entry, ...] = ()
    """The journal as it believes it to be."""
    sent: Message | None = None
    answer: str = ""
    """Of the store to what it sent, on its way."""


class State(NamedTuple):
    journal: tuple[Entry, ...]
    nodes: tuple[Node, ...]
    strays: tuple[Message, ...]


FOLLOWING = Node()


class Breach(Exception):
    pass


# -- what a log leads to ------------------------------------------------------------------------


def holders(log: tuple[Entry, ...], scope: Scope) -> dict[int, int]:
    """By item: the fence under which it is held, 0 while it waits, -1 once it is done."""
    held = dict.fromkeys(range(1, scope.waiting + 1), 0)
    for _, _, (kind, item, fence) in log:
        if kind == "grant":
            held[item] = fence
        elif kind == "complete":
            held[item] = -1
        elif kind in ("enqueue", "expire"):
            held[item] = 0
    return held


def decisions(node: Node, state: State, scope: Scope) -> Iterator[Record]:
    """What an owner may decide from what it believes, for callers who may ask anything: also with
    tokens that were granted long ago, by anybody."""
    held = holders(node.log, scope)
    if len(held) < scope.items:
        yield Record("enqueue", len(held) + 1)
    for item, fence in held.items():
        if fence == 0:
            yield Record("grant", item, len(node.log) + 1)
        elif fence > 0:
            yield Record("expire", item)
            for token in {one.record for one in state.journal if one.record.kind == "grant"}:
                is_held = token.fence == fence or scope.mutation == "no_fence"
                if token.item == item and is_held:
                    yield Record("complete", item, token.fence)


# -- what can happen ----------------------------------------------------------------------------


class Step(NamedTuple):
    """Told only if somebody asks."""

    words: str
    node: int
    entry: Entry
    answer: str = ""

    def __str__(self) -> str:
        what = _told(self.entry)
        return self.words.format(who="ABC"[self.node], what=what, answer=self.answer)


def steps(state: State, scope: Scope) -> Iterator[tuple[Step, State]]:
    for number, node in enumerate(state.nodes):
        if node.sent is not None:
            yield from _waiting(state, number, node, scope)
        elif node.epoch:
            crash = Step("{who} crashes", number, node.log[-1])
            yield crash, _with(state, number, FOLLOWING)
            work = sum(one.record.kind != "epoch" for one in node.log)
            for record in decisions(node, state, scope) if work < scope.records else ():
                yield _send(state, number, node, record, scope)
        else:
            yield from _try(state, number, scope)
    for message in dict.fromkeys(state.strays):
        left = list(state.strays)
        left.remove(message)
        journal, answer = land(state.journal, message, scope)
        step = Step("a late {what} comes to the journal: {answer}", 0, message.entry, answer)
        yield step, State(journal, state.nodes, tuple(left))


def _try(state: State, number: int, scope: Scope) -> Iterator[tuple[Step, State]]:
    """At any time: clocks decide when somebody tries, and here they may say anything. What it has
    read was the whole journal when it sends; being late makes it old."""
    last = state.journal[-1].epoch if state.journal else 0
    epoch = last if scope.mutation == "same_epoch" and last else last + 1
    if epoch > scope.epochs or (last and scope.mutation == "no_take_over"):
        return
    log = state.journal
    if scope.mutation == "unread_tail" and log:
        # It saw the end, but took nothing in of the last record.
        log = (*log[:-1], log[-1]._replace(record=Record("epoch")))
    entry = Entry(epoch, number, Record("epoch"))
    node = Node(epoch, log, Message(len(log), entry))
    step = Step("{who} reads to the end and tries {what}", number, entry)
    yield step, _with(state, number, node)


def _send(
    state: State, number: int, node: Node, record: Record, scope: Scope
) -> tuple[Step, State]:
    entry = Entry(node.epoch, number, record)
    message = Message(len(node.log), entry)
    step = Step("{who} decides and sends {what}", number, entry)
    if scope.mutation == "answer_before_append":
        acknowledge(state, message, step)
    return step, _with(state, number, node._replace(sent=message))


def _waiting(state: State, number: int, node: Node, scope: Scope) -> Iterator[tuple[Step, State]]:
    message = node.sent
    assert message is not None
    entry = message.entry
    if not node.answer:
        journal, answer = land(state.journal, message, scope)
        after = _with(state, number, node._replace(answer=answer))
        step = Step("{what} of {who} comes to the journal: {answer}", number, entry, answer)
        yield step, after._replace(journal=journal)
        if len(state.strays) < scope.strays:
            strays = tuple(sorted((*state.strays, message)))
            step = Step("{who} gives up waiting, {what} is still on its way", number, entry)
            yield step, _with(state, number, FOLLOWING)._replace(strays=strays)
            step = Step("{what} of {who} is sent twice", number, entry)
            yield step, state._replace(strays=strays)
    elif node.answer == "taken":
        step = Step("{who} hears that {what} is in the journal", number, entry)
        if entry.record.kind != "epoch":
            acknowledge(state, message, step)
        yield step, _with(state, number, Node(node.epoch, (*node.log, entry)))
    elif _tries_again(message, scope):
        step = Step("{who} hears that {what} was refused, and reads on", number, entry)
        yield step, _with(state, number, Node(node.epoch, state.journal))
    # Its answer is lost, or it never came, or the process ends: it follows, and knows nothing.
    step = Step("{who} hears nothing good of {what} and steps down", number, entry)
    yield step, _with(state, number, FOLLOWING)


def _tries_again(message: Message, scope: Scope) -> bool:
    is_stubborn = scope.is_stubborn or scope.mutation == "no_epoch_check"
    return is_stubborn and message.entry.record.kind != "epoch"


def land(
    journal: tuple[Entry, ...], message: Message, scope: Scope
) -> tuple[tuple[Entry, ...], str]:
    """The conditional append: this is all that keeps two owners apart."""
    last = journal[-1].epoch if journal else 0
    if message.entry.epoch < last and scope.mutation != "no_epoch_check":
        return journal, "refused"
    if message.expected != len(journal) and scope.mutation != "no_sequence_check":
        return journal, "refused"
    return (*journal, message.entry), "taken"


def _with(state: State, number: int, node: Node) -> State:
    return state._replace(nodes=(*state.nodes[:number], node, *state.nodes[number + 1 :]))


def _told(entry: Entry) -> str:
    kind, item, fence = entry.record
    if kind == "epoch":
        return f"epoch {entry.epoch}"
    return f"{kind} of item {item}" + (f" under fence {fence}" if fence else "")


# -- what must hold -----------------------------------------------------------------------------


def acknowledge(state: State, message: Message, step: Step) -> None:
    """A journal is never changed, so it is enough to look when the caller is told."""
    at = message.expected
    if len(state.journal) <= at or state.journal[at] != message.entry:
        raise Breach(f"{step}: its caller is told so, and it is not in the journal")


def check(before: State, after: State, scope: Scope) -> None:
    """Of the record that this step has appended, beside those that were there."""
    if len(after.journal) == len(before.journal):
        return
    journal, entry = before.journal, after.journal[-1]
    epoch, node, (kind, item, fence) = entry
    last = journal[-1].epoch if journal else 0
    owners = {one.node for one in journal if one.epoch == epoch}
    name = f"{_told(entry)} by {'ABC'[node]}"
    if epoch < last:
        raise Breach(f"{name} in epoch {epoch}, though epoch {last} has begun")
    if kind == "epoch" and owners:
        raise Breach(f"{name}: it had begun before")
    if kind != "epoch" and owners != {node}:
        raise Breach(f"{name}: epoch {epoch} is another's")
    held, fences = holders(journal, scope).get(item), _fences(journal, item)
    if kind == "grant" and held != 0:
        raise Breach(f"{name}: it is held, or done, or was never handed in")
    if kind == "grant" and fence <= max(fences, default=0):
        raise Breach(f"{name}, after fence {max(fences)}")
    if kind == "complete" and held == -1:
        raise Breach(f"{name}: it was completed before")
    if kind == "complete" and (held != fence or fence != max(fences, default=0)):
        raise Breach(f"{name}: the newest grant is {max(fences, default=0)}")
    if kind == "enqueue" and held is not None:
        raise Breach(f"{name}: it was handed in before")
    if kind == "expire" and held is not None and held <= 0:
        raise Breach(f"{name}: nobody held it")


def _fences(journal: tuple[Entry, ...], item: int) -> list[int]:
    return [one.record.fence for one in journal if one.record[:2] == ("grant", item)]


def check_owner(state: State) -> None:
    """Two may believe; whoever believes it of the newest epoch is the one who began it."""
    if not state.journal:
        return
    last = state.journal[-1]
    for number, node in enumerate(state.nodes):
        is_trying = node.sent is not None and node.sent.entry.record.kind == "epoch"
        if node.epoch == last.epoch and not is_trying and number != last.node:
            raise Breach(f"{'ABC'[number]} believes it owns epoch {last.epoch} of another")


def has_owner(state: State) -> bool:
    """Somebody can append now."""
    last = state.journal[-1] if state.journal else None
    return last is not None and any(
        node.epoch == last.epoch and node.log == state.journal for node in state.nodes
    )
