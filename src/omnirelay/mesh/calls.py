"""What stands in a shard's inbox: commands of one caller, and where their outcomes go."""

from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress

from omnirelay.lease.answers import Answer, LeaseResponse
from omnirelay.lease.commands import Command
from omnirelay.model import limits
from omnirelay.model.errors import OmniRelayError
from omnirelay.model.items import ANONYMOUS

Outcome = Answer | OmniRelayError
Reply = Callable[[Sequence[Outcome]], None]
"""Called once; a turn that was interrupted while it answered may call it again, to no effect."""


def unheard(outcomes: Sequence[Outcome]) -> None:
    """The reply of a call nobody waits for, or that a desk will put its own in."""


class Call:
    """Commands that travel together; each has its own outcome. Enqueues among them may wait for
    backpressure to end, until `wait_ms` has passed; those before them are durable by then, and
    `settled` counts them. A caller that has gone sets `withdrawn`: what waits waits no more."""

    __slots__ = ("commands", "deadline", "outcomes", "reply", "settled", "wait_ms", "withdrawn")

    def __init__(
        self, commands: Sequence[Command], reply: Reply = unheard, *, wait_ms: int | None = None
    ) -> None:
        self.commands = commands
        self.reply = reply
        self.wait_ms = wait_ms
        self.deadline: int | None = None
        self.outcomes: list[Outcome] = []
        self.settled = 0
        self.withdrawn = False


class Leases(Answer, frozen=True, gc=False):
    leases: tuple[LeaseResponse, ...]


class LeaseCall:
    """A wish for up to `max_items` leases, which may wait. `withdrawn` may be set from any thread
    by a caller that has gone."""

    __slots__ = (
        "deadline",
        "lease_duration_ms",
        "max_items",
        "peer_id",
        "principal",
        "proof",
        "reply",
        "request_id",
        "resource_types",
        "wait_ms",
        "withdrawn",
    )

    def __init__(
        self,
        reply: Reply = unheard,
        *,
        max_items: int = 1,
        wait_ms: int = 0,
        resource_types: tuple[str, ...] | None = None,
        lease_duration_ms: int | None = None,
        request_id: str | None = None,
        peer_id: str | None = None,
        principal: str = ANONYMOUS,
        proof: str | None = None,
    ) -> None:
        self.reply = reply
        self.max_items = max_items
        self.wait_ms = wait_ms
        self.resource_types = resource_types
        self.lease_duration_ms = lease_duration_ms
        self.request_id = request_id
        self.peer_id = peer_id
        self.principal = principal
        self.proof = proof
        self.deadline = 0
        self.withdrawn = False


AnyCall = Call | LeaseCall


def asked_in(inbox: deque[AnyCall], most: int = limits.INBOX_MAX) -> int:
    """How many commands and leases the calls in it ask for; does not count on from `most`."""
    count = 0
    for place in range(len(inbox)):  # others may add to it meanwhile, from their threads
        call = inbox[place]
        count += call.max_items if isinstance(call, LeaseCall) else len(call.commands)
        if count >= most:
            break
    return count


def emptied(inbox: deque[AnyCall]) -> list[AnyCall]:
    """All that was in it. Another thread may be at it too, and whoever takes a call answers it."""
    taken: list[AnyCall] = []
    with suppress(IndexError):
        while True:
            taken.append(inbox.popleft())
    return taken
