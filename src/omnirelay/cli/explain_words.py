"""Why an item is not moving, in words: a pure reading of what `inspect` and `stats` say."""

from collections.abc import Iterator
from datetime import datetime

import msgspec

from omnirelay.cli.saying import clock_time, counted, plain, span
from omnirelay.journal.events import Event
from omnirelay.mesh.wire import InspectResponse, StatsResponse

HISTORY_SHOWN = 8


class Explanation(msgspec.Struct, rename="camel", omit_defaults=True, kw_only=True):
    sequence_id: int
    state: str
    summary: str
    facts: dict[str, str] = {}
    next: list[str] = []
    """What to do, as commands where there are any."""
    history: list[str] = []
    resource_type: str | None = None
    resource_id: str | None = None


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """Everything the words are made of."""

    view: InspectResponse
    stats: StatsResponse
    now: datetime
    blocker: InspectResponse | None = None
    """Who holds the resource that a parked item waits for, if it could be found."""
    flags: str = ""
    """How to reach the same queue, for the commands that are proposed."""

    @property
    def sequence(self) -> int:
        return self.view.item.sequence_id

    def command(self, words: str) -> str:
        return f"omnirelay {words}{self.flags}"

    @property
    def who_works(self) -> str:
        """Peers are told over HTTP only."""
        is_http = "--url" not in self.flags or "--url http" in self.flags
        return self.command("peers" if is_http else "stats")

    def ms_until(self, at: datetime) -> float:
        return (at - self.now).total_seconds() * 1000


def explain_item(found: Found) -> Explanation:
    item = found.view.item
    summary, proposed = _STATES[found.view.state](found)
    return Explanation(
        sequence_id=found.sequence,
        state=found.view.state,
        resource_type=item.payload.resource_type,
        resource_id=item.payload.resource_id,
        summary=summary,
        facts=dict(_facts(found)),
        next=proposed,
        history=[*map(event_line, found.view.history[-HISTORY_SHOWN:])],
    )


# -- one function a state -----------------------------------------------------------------------

Said = tuple[str, list[str]]


def _leased(found: Found) -> Said:
    view = found.view
    assert view.granted_at is not None
    assert view.expires_at is not None
    holder = _holder(view)
    held = span(-found.ms_until(view.granted_at))
    left = found.ms_until(view.expires_at)
    if left < 0:
        return (
            f"{holder} held it for {held} and is {span(left)} past its deadline: the queue takes "
            f"it back at once, or the clocks of here and there differ.",
            [found.command(f"explain {found.sequence}")],
        )
    beats = sum(event.event_type == "Heartbeat" for event in view.history)
    renewing = f"renewed {counted(beats, 'time')} of late" if beats else "not renewed yet"
    return (
        f"{holder} works on it since {held} and has {span(left)} left ({renewing}). If that worker "
        f"is dead, the lease runs out by itself and the next attempt starts.",
        [
            f"wait {span(left)}, then: {found.command(f'explain {found.sequence}')}",
            f"take it away now, which fences its holder out: "
            f"{found.command('drain --include-active --out items.ndjson')}, then "
            f"{found.command('restore items.ndjson')}",
        ],
    )


def _parked(found: Found) -> Said:
    payload = found.view.item.payload
    blocker = found.blocker
    if blocker is None:
        key = payload.partition_key
        what = f"partition key {plain(key)!r}" if key else "its resource"
        return (
            f"It is parked: another item of {what} goes first, and this queue lets only one of "
            f"them run at a time.",
            [found.who_works],
        )
    other = blocker.item.sequence_id
    holder = _holder(blocker)
    until = "" if blocker.expires_at is None else f" until {clock_time(blocker.expires_at)}"
    return (
        f"It is parked behind item {other} of the same resource, which {holder} holds{until}; only "
        f"one of them runs at a time.",
        [found.command(f"explain {other}")],
    )


def _delayed(found: Found) -> Said:
    at = found.view.item.available_at
    why = "after its last attempt failed" if found.view.item.last_error else "as its producer asked"
    if at is None:
        return f"It is delayed {why}.", [found.command(f"explain {found.sequence}")]
    left = max(0.0, found.ms_until(at))
    return (
        f"It is delayed {why}: it may be leased at {clock_time(at)}, {span(left)} from now.",
        [f"wait {span(left)}, then: {found.command(f'lease {_type_flag(found)}')}"],
    )


def _ready(found: Found) -> Said:
    """Whoever asks for its type gets it or one before it, so what is missing is somebody asking."""
    kind = plain(found.view.item.payload.resource_type)
    pending, active = found.stats.stats.pending_count, found.stats.stats.active_lease_count
    others = counted(pending - 1, "other item")
    if active:
        busy = f"others are leased ({active}): its workers may be busy, or ask for other types only"
    else:
        busy = f"no lease is out: it looks as if no worker asks for type {kind!r}"
    return (
        f"It is ready and waits for a worker, together with {others}; {busy}.",
        [
            f"start a worker for it, or take one by hand: "
            f"{found.command(f'lease {_type_flag(found)}')}",
            f"see who works: {found.who_works}",
        ],
    )


def _dead(found: Found) -> Said:
    item = found.view.item
    error = "" if item.last_error is None else f": {plain(item.last_error.message)}"
    return (
        f"It was given up after {counted(item.attempt, 'attempt')}{error}. Nothing moves it but "
        f"you.",
        [
            f"mend the cause, then: {found.command(f'deadletters redrive {found.sequence}')}",
            f"or drop it for good: {found.command(f'deadletters purge {found.sequence} --yes')}",
        ],
    )


_STATES = {
    "leased": _leased,
    "parked": _parked,
    "delayed": _delayed,
    "ready": _ready,
    "dead": _dead,
}


# -- an item that is gone -----------------------------------------------------------------------

_ENDED = {
    "Completed": "It is done: {who} completed it at {at}{fence}.",
    "DrainSnapshot": "It was drained at {at}: it waits in whatever file the drain wrote.",
    "Purged": "It was dropped for good at {at}.",
}


def explain_gone(sequence: int, history: list[Event]) -> Explanation | None:
    """From the journal; None if its end is not to be found there."""
    last = next((event for event in reversed(history) if event.event_type in _ENDED), None)
    if last is None:
        return None
    words = _ENDED[last.event_type].format(
        who=plain(last.peer_id or last.principal or "somebody"),
        at=clock_time(last.timestamp),
        fence="" if last.fence is None else f" with fence {last.fence}",
    )
    next_ = ["omnirelay restore FILE"] if last.event_type == "DrainSnapshot" else []
    return Explanation(
        sequence_id=sequence,
        state={"Completed": "completed", "DrainSnapshot": "drained"}.get(last.event_type, "purged"),
        summary=words,
        next=next_,
        history=[*map(event_line, history[-HISTORY_SHOWN:])],
    )


# -- facts --------------------------------------------------------------------------------------


def _facts(found: Found) -> Iterator[tuple[str, str]]:
    view, item = found.view, found.view.item
    yield (
        "enqueued",
        f"{clock_time(item.enqueued_at)}, {span(-found.ms_until(item.enqueued_at))} ago",
    )
    allowed = "" if item.max_attempts is None else f" of {item.max_attempts}"
    yield "attempt", f"{item.attempt}{allowed or ', up to what the queue allows'}"
    if item.last_error is not None:
        code = "" if item.last_error.code is None else f" ({plain(item.last_error.code)})"
        yield "last error", f"{plain(item.last_error.message)}{code}"
    if view.granted_at is not None:
        yield "holder", _holder(view)
        yield "held for", span(-found.ms_until(view.granted_at))
    if view.expires_at is not None:
        yield "deadline", clock_time(view.expires_at)
    if view.fence is not None:
        yield "fence", str(view.fence)
    if item.available_at is not None:
        yield "available", clock_time(item.available_at)
    if item.priority:
        yield "priority", str(item.priority)
    if item.payload.partition_key:
        yield "partition key", plain(item.payload.partition_key)
    if found.stats.backpressure:
        yield "backpressure", "on: enqueue is paused until enough is done; leasing goes on"


def _holder(view: InspectResponse) -> str:
    principal = plain(view.principal or "anonymous")
    if view.owner_peer_id is None:
        return principal
    return f"{plain(view.owner_peer_id)} (principal {principal})"


def _type_flag(found: Found) -> str:
    kind = found.view.item.payload.resource_type
    return f"--type {kind}" if kind.isalnum() else f"--type '{plain(kind)}'"


def event_line(event: Event) -> str:
    facts = [
        f"{name} {plain(value)}"
        for name, value in (
            ("attempt", event.attempt),
            ("fence", event.fence),
            ("by", event.peer_id),
            ("->", event.disposition),
            ("error", None if event.error is None else event.error.message),
        )
        if value is not None
    ]
    return f"{clock_time(event.timestamp)}  {event.event_type:<15}  {'  '.join(facts)}".rstrip()
