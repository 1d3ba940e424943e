"""Named things a node can be asked to do, the registry that finds them, and the typed helpers that
make a procedure of a plain function in one line."""

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator
from contextlib import aclosing
from enum import StrEnum
from typing import Any, TypeVar

import msgspec

from omnirelay.model.errors import InvalidOption, Unimplemented
from omnirelay.rpc.meta import Reply, Request, RequestMeta, Response, Stream

Handler = Callable[[Request], Awaitable[Reply]]
Q = TypeVar("Q")
"""What is asked; R is what is answered."""
R = TypeVar("R")


class Kind(StrEnum):
    UNARY = "unary"
    ONEWAY = "oneway"
    SERVER_STREAM = "serverStream"
    CLIENT_STREAM = "clientStream"
    DUPLEX = "duplex"


class Procedure(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    """`namespace::verb`."""
    handler: Handler
    kind: Kind = Kind.UNARY
    idempotent: bool = False
    """A caller may repeat it after an unknown outcome."""
    urgent: bool = False
    """Never slowed by a limiter: heartbeats, completions and whatever else makes room."""
    request: Any = None
    """The type the typed helpers decode, and the one they encode; for OpenAPI too. Any: a type."""
    response: Any = None
    summary: str = ""
    prompt: bool = False
    """Its handler awaits nothing but futures, so that it can be served without a task."""

    @property
    def namespace(self) -> str:
        return self.name.partition("::")[0]

    @property
    def verb(self) -> str:
        return self.name.partition("::")[2]


class Registry:
    def __init__(self) -> None:
        self._procedures: dict[str, Procedure] = {}

    def add(self, procedure: Procedure) -> None:
        """Raises InvalidOption for a name that is taken: two components under one namespace would
        otherwise quietly answer for each other."""
        namespace, parted, verb = procedure.name.partition("::")
        if not namespace or not parted or not verb:
            raise InvalidOption(f"a procedure is named namespace::verb, not {procedure.name!r}")
        if procedure.name in self._procedures:
            raise InvalidOption(f"procedure {procedure.name!r} is registered already")
        self._procedures[procedure.name] = procedure

    def find(self, name: str) -> Procedure:
        procedure = self._procedures.get(name)
        if procedure is None:
            raise Unimplemented(f"no procedure {name[:200]!r} is served here")
        return procedure

    def get(self, name: str) -> Procedure | None:
        return self._procedures.get(name)

    def kind_of(self, name: str) -> Kind | None:
        """None for a procedure that is not served here: its caller hears so when it is called."""
        procedure = self._procedures.get(name)
        return None if procedure is None else procedure.kind

    def __iter__(self) -> Iterator[Procedure]:
        return iter(self._procedures.values())

    # -- typed functions ----------------------------------------------------------------------

    def unary(
        self,
        name: str,
        function: Callable[[RequestMeta, Q], Awaitable[R | None]],
        request: type[Q],
        response: type[R],
        **declared: Any,  # the other fields of Procedure, which checks them
    ) -> None:
        """An answer of None is the empty reply."""

        async def handle(call: Request) -> Reply:
            answer = await function(call.meta, call.codec.decode(call.body, request))
            return _EMPTY if answer is None else Response(call.codec.encode(answer))

        self.add(
            Procedure(name=name, handler=handle, request=request, response=response, **declared)
        )

    def oneway(
        self,
        name: str,
        function: Callable[[RequestMeta, Q], Awaitable[None]],
        request: type[Q],
        **declared: Any,
    ) -> None:
        """The caller hears that it was taken, not what came of it."""

        async def handle(call: Request) -> Reply:
            await function(call.meta, call.codec.decode(call.body, request))
            return _EMPTY

        self.add(
            Procedure(name=name, handler=handle, kind=Kind.ONEWAY, request=request, **declared)
        )

    def server_stream(
        self,
        name: str,
        function: Callable[[RequestMeta, Q], AsyncGenerator[R]],
        request: type[Q],
        response: type[R],
        **declared: Any,
    ) -> None:
        async def handle(call: Request) -> Reply:
            answers = function(call.meta, call.codec.decode(call.body, request))
            return Stream(_encoded(call, answers))

        self.add(
            Procedure(
                name=name,
                handler=handle,
                kind=Kind.SERVER_STREAM,
                request=request,
                response=response,
                **declared,
            )
        )

    def client_stream(
        self,
        name: str,
        function: Callable[[RequestMeta, AsyncIterator[Q]], Awaitable[R]],
        request: type[Q],
        response: type[R],
        **declared: Any,
    ) -> None:
        async def handle(call: Request) -> Reply:
            return Response(call.codec.encode(await function(call.meta, _decoded(call, request))))

        self.add(
            Procedure(
                name=name,
                handler=handle,
                kind=Kind.CLIENT_STREAM,
                request=request,
                response=response,
                **declared,
            )
        )

    def duplex(
        self,
        name: str,
        function: Callable[[RequestMeta, AsyncIterator[Q]], AsyncGenerator[R]],
        request: type[Q],
        response: type[R],
        **declared: Any,
    ) -> None:
        async def handle(call: Request) -> Reply:
            return Stream(_encoded(call, function(call.meta, _decoded(call, request))))

        self.add(
            Procedure(
                name=name,
                handler=handle,
                kind=Kind.DUPLEX,
                request=request,
                response=response,
                **declared,
            )
        )


_EMPTY = Response(empty=True)


async def _encoded(call: Request, answers: AsyncGenerator[Any]) -> AsyncGenerator[bytes]:
    async with aclosing(answers):
        async for answer in answers:
            yield call.codec.encode(answer)


async def _decoded(call: Request, kind: type[Q]) -> AsyncIterator[Q]:
    assert call.inbound is not None, "the transport opens the caller's side of a stream"
    async for body in call.inbound:
        yield call.codec.decode(body, kind)
