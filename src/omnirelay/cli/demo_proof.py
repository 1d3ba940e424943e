"""What the demo's journal proves, from its events alone and what the workers were told."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import pairwise
from statistics import median

import msgspec

from omnirelay.journal.events import Event

KILL_P50_MS = 4_000
KILL_WORST_MS = 6_000
"""From the kill of an owner to the next grant, with an epoch of 2 s."""
_ENDS = ("Completed", "DrainSnapshot", "Purged")


class Grant(msgspec.Struct, frozen=True):
    item: int
    fence: int


class Acknowledged(msgspec.Struct):
    """What the node had said yes to, as its callers heard it."""

    enqueued: set[int] = msgspec.field(default_factory=set)
    completed: dict[int, int] = msgspec.field(default_factory=dict)
    """Item to fence."""

    def copy(self) -> "Acknowledged":
        return Acknowledged(set(self.enqueued), dict(self.completed))


class Killed(msgspec.Struct, frozen=True):
    """The node, at the moment of SIGKILL."""

    before: Acknowledged
    in_hand: int
    """Leases that workers had then."""
    exit_code: int


class Refusal(msgspec.Struct, frozen=True):
    """What a caller heard who wanted to finish what it had lost."""

    wire: str
    status: str
    current_fence: int
    """0 if it was, against all promises, not refused."""


class Witnessed(msgspec.Struct, frozen=True):
    node: Killed
    told: Acknowledged
    """All that any caller heard, before and after the kill."""
    dead: Grant
    stopped: Grant
    refusals: list[Refusal]


class Proof(msgspec.Struct, frozen=True):
    claim: str
    holds: bool
    detail: str


def prove(events: Sequence[Event], seen: Witnessed) -> list[Proof]:
    story = _Story(events)
    return [
        _is_whole(events),
        _each_ended_once(story, seen.told),
        _newest_fence_completed(story),
        _survived_the_kill(events, seen),
        _was_replaced(story, "the worker that was killed was replaced", seen.dead),
        _was_replaced(story, "the worker that was stopped was replaced", seen.stopped),
        *(_was_fenced_out(story, seen.stopped, refusal) for refusal in seen.refusals),
    ]


class Replaced(msgspec.Struct, frozen=True):
    """An owner that others had to do without."""

    how: str
    node: str
    epoch: int
    """The one it wrote in."""


def prove_mesh(
    events: Sequence[Event], told: Acknowledged, replaced: Sequence[Replaced]
) -> list[Proof]:
    """Of a journal that several nodes wrote."""
    story = _Story(events)
    lost = _missing(told, events)
    detail = f"{len(told.enqueued)} enqueues and {len(told.completed)} completions"
    return [
        _is_whole(events),
        _each_ended_once(story, told),
        _newest_fence_completed(story),
        Proof("nothing that was acknowledged is lost", not lost, _or_named(detail, lost)),
        _one_wrote_at_a_time(events),
        *(_has_a_successor(events, one) for one in replaced),
    ]


def prove_kills(gaps_ms: Sequence[int]) -> Proof:
    """How long nobody was granted anything after each kill."""
    half, worst = round(median(gaps_ms)), max(gaps_ms)
    holds = half <= KILL_P50_MS and worst <= KILL_WORST_MS
    detail = (
        f"p50 {half} ms, at most {KILL_P50_MS}; worst {worst} ms, at most {KILL_WORST_MS}; "
        f"{len(gaps_ms)} kills"
    )
    return Proof("an owner that is killed is replaced in time", holds, detail)


def _one_wrote_at_a_time(events: Sequence[Event]) -> Proof:
    writers = defaultdict[int, set[str]](set)
    for event in events:
        writers[event.epoch].add(event.node)
    wrong = [epoch for epoch, nodes in writers.items() if len(nodes) > 1]
    epochs = [event.epoch for event in events]
    names = [" ".join(sorted(nodes)) for nodes in writers.values()]
    detail = f"{len(writers)} epochs, of {', '.join(names)} in turn"
    holds = not wrong and epochs == sorted(epochs)
    return Proof("one node wrote at a time", holds, _or_named(detail, wrong))


def _has_a_successor(events: Sequence[Event], one: Replaced) -> Proof:
    later = next((e for e in events if e.epoch > one.epoch), None)
    after = [e for e in events if e.epoch > one.epoch and e.event_type == "LeaseGranted"]
    holds = later is not None and later.event_type == "EpochStarted" and bool(after)
    name = "nobody" if later is None else later.node
    detail = f"{name} began epoch {one.epoch + 1} and granted, the first of {len(after)} leases"
    return Proof(f"{one.node}, which was {one.how}, was replaced", holds, detail)


class _Story:
    """Events by item."""

    def __init__(self, events: Sequence[Event]) -> None:
        self.items: dict[int, list[Event]] = defaultdict(list)
        for event in events:
            for item in _items_of(event):
                self.items[item].append(event)

    def fences(self, item: int, kind: str) -> list[int]:
        return [e.fence or 0 for e in self.items[item] if e.event_type == kind]


def _items_of(event: Event) -> Iterator[int]:
    if event.event_type == "Refused":
        return  # it says that nothing happened
    if event.sequence_id is not None:
        yield event.sequence_id
    elif event.items is not None and event.event_type != "Heartbeat":
        yield from (item.sequence_id for item in event.items)


def _is_whole(events: Sequence[Event]) -> Proof:
    numbers = [event.sequence_number for event in events]
    holds = numbers == list(range(1, len(events) + 1))
    detail = f"{len(events)} events from 1 on without a gap, every checksum follows the one before"
    return Proof("the journal is whole", holds, detail)


def _each_ended_once(story: _Story, told: Acknowledged) -> Proof:
    wrong = [
        item
        for item, events in story.items.items()
        if [e.event_type for e in events].count("Enqueue") != 1
        or [e.event_type for e in events if e.event_type in _ENDS] != ["Completed"]
        or events[-1].event_type != "Completed"
    ]
    wrong += told.enqueued ^ story.items.keys()
    holds = not wrong
    detail = f"{len(story.items)} items, each enqueued once, completed once, untouched afterwards"
    return Proof("every item ended exactly once", holds, _or_named(detail, wrong))


def _newest_fence_completed(story: _Story) -> Proof:
    wrong = [
        item
        for item in story.items
        if story.fences(item, "Completed") != story.fences(item, "LeaseGranted")[-1:]
        or not _grows(story.fences(item, "LeaseGranted"))
    ]
    again = sum(len(story.fences(item, "LeaseGranted")) > 1 for item in story.items)
    detail = f"also the {again} items that were granted more than once"
    claim = "every completion carries the newest fence of its item"
    return Proof(claim, not wrong, _or_named(detail, wrong))


def _survived_the_kill(events: Sequence[Event], seen: Witnessed) -> Proof:
    """Epoch 1 is the killed node's own, so what stands there was written before its death."""
    killed = seen.node
    lost = _missing(killed.before, [event for event in events if event.epoch == 1])
    lost += _missing(seen.told, events)
    holds = not lost and killed.exit_code == -9 and any(event.epoch > 1 for event in events)
    detail = (
        f"{len(killed.before.enqueued)} enqueues and {len(killed.before.completed)} completions "
        f"were acknowledged before SIGKILL, with {killed.in_hand} leases in hand; "
        f"{len(seen.told.enqueued)} and {len(seen.told.completed)} in the end"
    )
    claim = "nothing that was acknowledged is lost, although the node was killed"
    return Proof(claim, holds, _or_named(detail, lost))


def _missing(told: Acknowledged, events: Sequence[Event]) -> list[int]:
    enqueued = {e.sequence_id for e in events if e.event_type == "Enqueue"}
    completed = {e.sequence_id: e.fence for e in events if e.event_type == "Completed"}
    return [item for item in told.enqueued if item not in enqueued] + [
        item for item, fence in told.completed.items() if completed.get(item) != fence
    ]


def _was_replaced(story: _Story, claim: str, grant: Grant) -> Proof:
    expired = story.fences(grant.item, "Expired")
    completed = story.fences(grant.item, "Completed")
    holds = grant.fence in expired and len(completed) == 1 and completed[0] > grant.fence
    detail = f"item {grant.item}: fence {grant.fence} expired, fence {_text(completed)} completed"
    return Proof(claim, holds, detail)


def _was_fenced_out(story: _Story, late: Grant, refusal: Refusal) -> Proof:
    named = refusal.current_fence
    holds = (
        refusal.status == "FAILED_PRECONDITION"
        and named > late.fence
        and named in story.fences(late.item, "LeaseGranted")
        and late.fence not in story.fences(late.item, "Completed")
    )
    detail = f"{refusal.status} for fence {late.fence}, and {named} was named as the current one"
    return Proof(f"its stale completion over {refusal.wire} was refused", holds, detail)


def _grows(fences: Sequence[int]) -> bool:
    return all(former < later for former, later in pairwise(fences))


def _text(fences: Sequence[int]) -> str:
    return ", ".join(map(str, fences)) or "none"


def _or_named(detail: str, wrong: Sequence[int]) -> str:
    return f"not true of items {_text(sorted(wrong)[:10])}" if wrong else detail
