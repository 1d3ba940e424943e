"""Searches the model of ownership and fencing to its end. Needs Python 3.11 and nothing else.

    python docs/spec/search.py                     every rule in every state of each scope
    python docs/spec/search.py --mutate NAME       what the rules say to a broken protocol

From the empty journal every action is tried in every state that can be reached, breadth first, so
the first breach found is a shortest one, and it is told step by step.
"""

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import permutations

from ownership import (
    FOLLOWING,
    MUTATIONS,
    Breach,
    Entry,
    Message,
    Scope,
    State,
    Step,
    check,
    check_owner,
    has_owner,
    steps,
)

SCOPES = {
    "two nodes, a whole life of an item": Scope(),
    "three nodes, each of which may own": Scope(nodes=3, records=1),
    "two nodes that do not step down at once": Scope(records=2, is_stubborn=True),
}


@dataclass(frozen=True)
class Search:
    states: int
    transitions: int
    depth: int
    breach: str = ""
    trace: tuple[str, ...] = ()
    """The shortest way there."""


def same(state: State) -> State:
    """One for all states that differ only in the names of the nodes."""
    seen = dict.fromkeys(one.node for one in state.journal)
    rest = [number for number in range(len(state.nodes)) if number not in seen]
    if len(rest) < 2 and list(seen) == sorted(seen) and (not seen or max(seen) == len(seen) - 1):
        return state
    return min((_renamed(state, [*seen, *order]) for order in permutations(rest)), key=_key)


def _key(state: State) -> tuple[object, ...]:
    return (state.strays, [(n.epoch, n.log, n.sent or (), n.answer) for n in state.nodes])


def _renamed(state: State, order: list[int]) -> State:
    new = {old: place for place, old in enumerate(order)}

    def entries(log: tuple[Entry, ...]) -> tuple[Entry, ...]:
        return tuple(Entry(one.epoch, new[one.node], one.record) for one in log)

    def message(one: Message) -> Message:
        return Message(one.expected, entries((one.entry,))[0])

    nodes = tuple(
        node._replace(log=entries(node.log), sent=node.sent and message(node.sent))
        for node in (state.nodes[old] for old in order)
    )
    strays = tuple(sorted(message(one) for one in state.strays))
    return State(entries(state.journal), nodes, strays)


class Found:
    """The states met so far, by number, and how each was first come by."""

    def __init__(self, root: State) -> None:
        self.numbers = {root: 0}
        self.states = [root]
        self.came = [0]
        self.depth = [0]
        self.before: list[list[int]] = [[]]

    def add(self, state: State, before: int) -> None:
        number = self.numbers.setdefault(state, len(self.states))
        if number == len(self.states):
            self.states.append(state)
            self.came.append(before)
            self.depth.append(self.depth[before] + 1)
            self.before.append([])
        self.before[number].append(before)

    def path(self, number: int) -> list[State]:
        """From after the first step to the state."""
        path: list[State] = []
        while number:
            path.append(self.states[number])
            number = self.came[number]
        return path[::-1]


def search(scope: Scope) -> Search:
    """All states within the scope, or the first breach."""
    found = Found(State((), (FOLLOWING,) * scope.nodes, ()))
    number = transitions = 0
    while number < len(found.states):
        try:
            for _, after in _checked(found.states[number], scope):
                transitions += 1
                found.add(same(after), number)
        except Breach:
            trace = told(found.path(number), scope)
            depth = found.depth[number] + 1
            return Search(len(found.states), transitions, depth, trace[-1], tuple(trace))
        number += 1
    stuck = _stuck(found, scope)
    if stuck is not None:
        trace = [*told(found.path(stuck), scope), "no way leads from here to an owner"]
        return Search(len(found.states), transitions, found.depth[stuck], trace[-1], tuple(trace))
    return Search(len(found.states), transitions, found.depth[-1])


def _checked(state: State, scope: Scope) -> Iterator[tuple[Step, State]]:
    for step, after in steps(state, scope):
        try:
            check(state, after, scope)
            check_owner(after)
        except Breach as breach:
            raise Breach(f"{step}; {breach}") from None
        yield step, after


def told(path: list[State], scope: Scope) -> list[str]:
    """The way in words, and the breach that the next step is. Nodes keep their names throughout,
    which the states of the path do not."""
    state, words = State((), (FOLLOWING,) * scope.nodes, ()), []
    for wanted in path:
        step, state = next(one for one in steps(state, scope) if same(one[1]) == wanted)
        words.append(str(step))
    try:
        list(_checked(state, scope))
    except Breach as breach:
        words.append(f"{breach}")
    return words


def _stuck(found: Found, scope: Scope) -> int | None:
    """A state, not at the edge of the scope, from which nobody can come to own the journal."""
    alive = [has_owner(state) for state in found.states]
    line = [number for number, is_alive in enumerate(alive) if is_alive]
    while line:
        for before in found.before[line.pop()]:
            if not alive[before]:
                alive[before] = True
                line.append(before)
    for number, state in enumerate(found.states):
        is_inside = not state.journal or state.journal[-1].epoch < scope.epochs
        if is_inside and not alive[number]:
            return number
    return None


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Search the model of ownership and fencing.")
    parser.add_argument("--mutate", choices=MUTATIONS, help="break the protocol in this way")
    mutation = parser.parse_args(arguments).mutate or ""
    failed = False
    for name, scope in SCOPES.items():
        found = search(scope._replace(mutation=mutation))
        print(f"{name}: {found.states:,} states, {found.transitions:,} transitions, ", end="")
        print(f"depth {found.depth}: {found.breach or 'every rule holds'}")
        for number, words in enumerate(found.trace, start=1):
            print(f"{number:3} {words}")
        failed = failed or bool(found.breach)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
