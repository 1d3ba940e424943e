"""One protocol for every kind of call, inbound and outbound."""

from collections.abc import Sequence
from functools import partial
from typing import Protocol

from omnirelay.rpc.meta import Reply, Request
from omnirelay.rpc.procedure import Handler, Procedure


class Middleware(Protocol):
    async def __call__(self, request: Request, procedure: Procedure, next_: Handler) -> Reply:
        """Do something before and after `await next_(request)`, or refuse instead. For streams,
        what comes back is the open stream; wrap its iterator to see its end."""


def chain(middleware: Sequence[Middleware], procedure: Procedure) -> Handler:
    """The first of `middleware` sees the request first."""
    handler = procedure.handler
    for one in reversed(middleware):
        handler = partial(_step, one, procedure, handler)
    return handler


async def _step(one: Middleware, procedure: Procedure, next_: Handler, request: Request) -> Reply:
    return await one(request, procedure, next_)
