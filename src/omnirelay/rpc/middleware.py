"""One protocol for every kind of call, inbound and outbound."""

from collections.abc import Awaitable, Sequence
from functools import partial
from typing import NamedTuple, Protocol, runtime_checkable

from omnirelay.rpc.meta import Reply, Request
from omnirelay.rpc.procedure import Handler, Procedure


class Middleware(Protocol):
    async def __call__(self, request: Request, procedure: Procedure, next_: Handler) -> Reply:
        """Do something before and after `await next_(request)`, or refuse instead. For streams,
        what comes back is the open stream; wrap its iterator to see its end."""


@runtime_checkable
class Idle(Protocol):
    """Middleware that has nothing to do with many calls, and can tell which."""

    def is_idle(self, request: Request) -> bool:
        """True: the call goes on as if this were not there, and pays for no coroutine here. Must
        not raise. One whose answer hangs on the request's meta and nothing else says so by
        `is_settled`."""


@runtime_checkable
class Passing(Protocol):
    """Middleware that awaits nothing but `next_` and keeps nothing in its context."""

    is_passing: bool


def chain(middleware: Sequence[Middleware], procedure: Procedure) -> Handler:
    """The first of `middleware` sees the request first."""
    handler = procedure.handler
    for one in reversed(middleware):
        step = partial(one, procedure=procedure, next_=handler)
        handler = partial(_unless_idle, one, handler, step) if isinstance(one, Idle) else step
    return handler


class PromptChain(NamedTuple):
    """The way of a call without a task, and who must have nothing to do with it: first those whose
    answer hangs on its meta alone, so that it need not be asked for twice."""

    settled: tuple[Idle, ...]
    others: tuple[Idle, ...]
    handler: Handler


def prompt_chain(middleware: Sequence[Middleware], procedure: Procedure) -> PromptChain | None:
    """None if no call of this procedure could do without a task."""
    idle = [one for one in middleware if isinstance(one, Idle)]
    rest = [one for one in middleware if not isinstance(one, Idle)]
    if not procedure.prompt or not all(isinstance(one, Passing) for one in rest):
        return None
    return PromptChain(
        tuple(one for one in idle if getattr(one, "is_settled", False)),
        tuple(one for one in idle if not getattr(one, "is_settled", False)),
        chain(rest, procedure),
    )


def _unless_idle(one: Idle, next_: Handler, step: Handler, request: Request) -> Awaitable[Reply]:
    return next_(request) if one.is_idle(request) else step(request)
