"""A queue so simple that one can see it is right: lists, searched from end to end.

It shares nothing with the core but the words. Every method says what must come of a command, as a
plain value, and changes the lists accordingly. What the core alone decides (fences, lease ids) is
told to it; the rest it knows.
"""

from dataclasses import dataclass, field, replace
from itertools import pairwise

Token = tuple[int, str, int]
"""(item, lease id, fence)"""


@dataclass(frozen=True)
class Thing:
    """One item. Equal things are the same thing: `id` is unique in a queue."""

    id: int
    kind: str
    name: str
    partition: str | None
    request: str | None
    priority: int
    available: int
    attempts_max: int
    lease_ms: int
    origin: str
    attempt: int = 1
    failed: bool = False
    fence: int | None = None
    """Of its last grant."""


@dataclass
class Hold:
    thing: Thing
    lease: str
    fence: int
    until: int
    by: str
    lease_ms: int
    request: str | None


@dataclass
class Settings:
    serialize_by: str
    capacity: int
    high: int
    low: int
    attempts: int
    window: int
    entries: int
    backoff: int
    backoff_max: int


@dataclass
class NaiveQueue:
    name: str
    settings: Settings
    arrivals: list[Thing] = field(default_factory=list)
    """Everything pending, in the order it became so."""
    line: list[Thing] = field(default_factory=list)
    """What may be granted, first come first: of each key at most one."""
    parked: list[Thing] = field(default_factory=list)
    """What waits until its key is free."""
    delayed: list[Thing] = field(default_factory=list)
    held: list[Hold] = field(default_factory=list)
    dead: list[Thing] = field(default_factory=list)
    seen: dict[int, str] = field(default_factory=dict)
    """Every id that was ever here, and the queue it was born in."""
    gone: set[int] = field(default_factory=set)
    """Ids that were drained and have not come back."""
    requests: list[tuple[int, str, int]] = field(default_factory=list)
    leases: list[tuple[int, str, list[int]]] = field(default_factory=list)
    finished: list[tuple[int, str]] = field(default_factory=list)
    paused: bool = False
    at: int = 0
    """Time of the last record."""

    # -- lines --------------------------------------------------------------------------------

    def key(self, thing: Thing) -> object:
        if self.settings.serialize_by == "none":
            return thing.id
        if self.settings.serialize_by == "partition_key" and thing.partition is not None:
            return thing.partition
        return (thing.kind, thing.name)

    def ripen(self, now: int) -> None:
        for thing in sorted(self.delayed, key=lambda t: (t.available, t.id)):
            if thing.available <= now:
                self.delayed.remove(thing)
                self.line_up(thing)

    def arrive(self, thing: Thing, now: int, *, front: bool = False) -> None:
        self.arrivals.append(thing)
        if thing.available > now:
            self.delayed.append(thing)
        else:
            self.line_up(thing, front=front)

    def line_up(self, thing: Thing, *, front: bool = False) -> None:
        key = self.key(thing)
        rivals = [other for other in self.line if self.key(other) == key]
        if any(self.key(hold.thing) == key for hold in self.held) or (
            rivals and rivals[0].priority >= thing.priority
        ):
            self.parked.insert(0 if front else len(self.parked), thing)
            return
        for rival in rivals:
            self.line.remove(rival)
            self.parked.insert(0, rival)
        self.line.insert(0 if front else len(self.line), thing)

    def call_next(self, key: object) -> None:
        """The key is free: its most urgent waiting thing lines up behind everybody."""
        if any(self.key(other) == key for other in self.line):
            return
        mine = [thing for thing in self.parked if self.key(thing) == key]
        if mine and not any(self.key(hold.thing) == key for hold in self.held):
            best = max(mine, key=lambda thing: thing.priority)  # the first of the highest
            self.parked.remove(best)
            self.line.append(best)

    def leave(self, thing: Thing) -> None:
        for place in (self.arrivals, self.line, self.parked, self.delayed):
            if thing in place:
                place.remove(thing)

    def order(self) -> list[Thing]:
        return sorted(self.line, key=lambda thing: -thing.priority)

    def watch(self) -> None:
        if self.settings.high:
            mark = self.settings.low + 1 if self.paused else self.settings.high
            self.paused = len(self.arrivals) >= mark

    def line_up_anew(self, now: int) -> None:
        """A snapshot knows nothing of the line but who arrived before whom."""
        self.line, self.parked, self.delayed = [], [], []
        arrived, self.arrivals = self.arrivals, []
        for thing in arrived:
            self.arrive(thing, now)

    # -- commands -----------------------------------------------------------------------------

    def enqueue(self, thing: Thing, now: int) -> object:
        if thing.request is not None:
            for at, request, known in self.requests:
                if request == thing.request and at >= now - self.settings.window:
                    return ("duplicate", known)
        if len(self.arrivals) >= self.settings.capacity:
            return "QueueFull"
        if self.paused:
            return "Backpressure"
        thing = replace(thing, id=max(self.seen, default=0) + 1)
        self.seen[thing.id] = self.name
        self.arrive(thing, now)
        self.remember(thing, now)
        self.watch()
        return ("enqueued", thing.id)

    def remember(self, thing: Thing, now: int) -> None:
        if thing.request is None:
            return
        oldest = now - self.settings.window
        self.requests = [known for known in self.requests if known[0] >= oldest]
        for place, (at, request, _) in enumerate(self.requests):
            if request == thing.request:
                self.requests[place] = (at, request, thing.id)
                return
        self.requests.append((now, thing.request, thing.id))
        self.requests = self.requests[-self.settings.entries :]

    def asked_before(self, request: str, by: str, now: int) -> object:
        """What a lease call with a known request id gets; None if the id is new."""
        for at, known, ids in self.leases:
            if known != request or at < now - self.settings.window:
                continue
            still = [
                hold
                for id in ids
                for hold in self.held
                if hold.thing.id == id and hold.request == request and hold.until > now
            ]
            if not still:
                return "StaleToken"
            if any(hold.by != by for hold in still):
                return "NotHolder"
            return ("again", [(hold.thing.id, hold.fence) for hold in still])
        return None

    def first(self, kinds: tuple[str, ...] | None) -> Thing | None:
        fitting = [thing for thing in self.order() if kinds is None or thing.kind in kinds]
        return fitting[0] if fitting else None

    def grant(self, thing: Thing, hold: Hold, now: int) -> None:
        self.leave(thing)
        self.held.append(hold)
        if hold.request is not None:
            oldest = now - self.settings.window
            self.leases = [known for known in self.leases if known[0] >= oldest]
            mine = [ids for _, request, ids in self.leases if request == hold.request]
            if mine:
                mine[0].append(thing.id)
            else:
                self.leases.append((now, hold.request, [thing.id]))
            while len(self.leases) > 1 and self.spans() > self.settings.entries:
                del self.leases[0]
        self.watch()

    def spans(self) -> int:
        """Items that follow one another were given to a request at once, more or less."""
        given = [ids for _, _, ids in self.leases]
        return sum(id != before + 1 for ids in given for before, id in pairwise([-1, *ids]))

    def find(self, token: Token, by: str, now: int) -> Hold | str:
        """The hold a token proves, or the refusal it gets."""
        id, lease, fence = token
        for hold in self.held:
            if hold.thing.id == id:
                if hold.lease == lease and hold.by != by:
                    return "NotHolder"
                good = (hold.lease, hold.fence) == (lease, fence) and hold.until > now
                return hold if good else f"StaleToken {hold.fence}"
        for thing in [*self.arrivals, *self.dead]:
            if thing.id == id and thing.fence is not None:
                return f"StaleToken {thing.fence}"
        if id in self.gone or any(id == done for done, _ in self.finished):
            return "StaleToken None"
        return "UnknownToken"

    def heartbeat(self, token: Token, by: str, now: int) -> object:
        hold = self.find(token, by, now)
        if isinstance(hold, str):
            return hold
        hold.until = now + hold.lease_ms
        return ("until", hold.until)

    def complete(self, token: Token, by: str, now: int) -> object:
        hold = self.find(token, by, now)
        if isinstance(hold, str):
            return "again" if (token[0], token[1]) in self.finished else hold
        self.held.remove(hold)
        self.finished = [*self.finished, (hold.thing.id, hold.lease)][-self.settings.entries :]
        self.call_next(self.key(hold.thing))
        return "completed"

    def fail(self, token: Token, by: str, now: int, delay: int | None, requeue: bool) -> object:
        hold = self.find(token, by, now)
        if isinstance(hold, str):
            return hold
        if delay is None:
            backoff = self.settings.backoff * 2 ** (hold.thing.attempt - 1)
            delay = min(backoff, self.settings.backoff_max)
        return self.try_again(hold, now, available=now + delay if delay else 0, requeue=requeue)

    def try_again(self, hold: Hold, now: int, *, available: int, requeue: bool) -> object:
        self.held.remove(hold)
        thing = replace(hold.thing, failed=True, fence=hold.fence)
        last = thing.attempt >= (thing.attempts_max or self.settings.attempts)
        if last or not requeue:
            self.dead.append(replace(thing, available=0))
            self.call_next(self.key(thing))
            self.watch()
            return ("dead", thing.id)
        thing = replace(thing, attempt=thing.attempt + 1, available=available)
        self.arrivals.append(thing)
        if available > now:
            self.delayed.append(thing)
        else:
            self.parked.append(thing)  # behind those who waited for its key
        self.call_next(self.key(thing))
        self.watch()
        return ("requeued", thing.id, available)

    def release(self, token: Token, by: str, now: int) -> object:
        hold = self.find(token, by, now)
        if isinstance(hold, str):
            return hold
        self.held.remove(hold)
        thing = replace(hold.thing, available=0, fence=hold.fence)
        urgent = [t for t in self.parked if self.key(t) == self.key(thing)]
        if any(other.priority > thing.priority for other in urgent):
            self.arrivals.append(thing)
            self.parked.insert(0, thing)
            self.call_next(self.key(thing))
        else:
            self.arrive(thing, now, front=True)
        self.watch()
        return "released"

    def expire(self, now: int) -> object:
        late = sorted((h for h in self.held if h.until <= now), key=lambda h: (h.until, h.thing.id))
        return [self.try_again(hold, now, available=0, requeue=True) for hold in late]

    def drain(self, taken: list[int]) -> None:
        """Takes out what the core says it took; whether that was right, `may_drain` judges."""
        for id in taken:
            thing = self.by_id(id)
            self.leave(thing)
            self.dead = [other for other in self.dead if other.id != id]
            self.held = [hold for hold in self.held if hold.thing.id != id]
            self.gone.add(id)
            self.call_next(self.key(thing))
        self.watch()

    def by_id(self, id: int) -> Thing:
        everything = [*self.arrivals, *(hold.thing for hold in self.held), *self.dead]
        return next(thing for thing in everything if thing.id == id)

    def restore(self, things: list[tuple[Thing, bool]], now: int) -> object:
        coming: list[tuple[Thing, bool]] = []
        for thing, dead in things:
            here = self.seen.get(thing.id)
            if here is not None and here != thing.origin:
                return "SequenceConflict"
            if thing.id in self.gone or here is None:
                coming.append((thing, dead))
        alive = sum(not dead for _, dead in coming)
        if alive and len(self.arrivals) + alive > self.settings.capacity:
            return "QueueFull"
        for thing, dead in coming:
            self.gone.discard(thing.id)
            self.seen[thing.id] = thing.origin
            if dead:
                self.dead.append(thing)
            else:
                self.arrive(thing, now)
            self.remember(thing, now)
        self.watch()
        return [thing.id for thing, _ in coming]

    def redrive(self, ids: list[int], now: int) -> object:
        chosen = [thing for id in ids for thing in self.dead if thing.id == id]
        if chosen and len(self.arrivals) + len(chosen) > self.settings.capacity:
            return "QueueFull"
        for thing in chosen:
            self.dead.remove(thing)
            allowance = thing.attempt + self.settings.attempts
            again = replace(thing, attempt=thing.attempt + 1, attempts_max=allowance, available=0)
            self.arrive(again, now)
        self.watch()
        return [thing.id for thing in chosen]
