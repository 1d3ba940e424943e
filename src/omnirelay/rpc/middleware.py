"""One protocol for every kind of call, inbound and outbound."""

from collections.abc import Awaitable, Sequence
from functools import partial
from typing import Protocol, runtime_checkable

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
        not raise."""


def chain(middleware: Sequence[Middleware], procedure: Procedure) -> Handler:
    """The first of `middleware` sees the request first."""
    handler = procedure.handler
    for one in reversed(middleware):
        step = partial(one, procedure=procedure, next_=handler)
        handler = partial(_unless_idle, one, handler, step) if isinstance(one, Idle) else step
    return handler


def _unless_idle(one: Idle, next_: Handler, step: Handler, request: Request) -> Awaitable[Reply]:
    return next_(request) if one.is_idle(request) else step(request)
