"""Small parts that the tests of the call machinery are built from."""

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from typing import Any

import msgspec

from omnirelay.rpc.codec import JSON
from omnirelay.rpc.dispatcher import Dispatcher
from omnirelay.rpc.meta import Reply, Request, RequestMeta, Response, Stream
from omnirelay.rpc.middleware import Middleware
from omnirelay.rpc.procedure import Kind, Registry


class Word(msgspec.Struct, frozen=True):
    text: str = ""


class Five:
    """One procedure of every kind under `n`, each answering in its own way."""

    def __init__(self) -> None:
        self.heard: list[str] = []
        self.registry = Registry()
        self.registry.unary("n::unary", self._unary, Word, Word)
        self.registry.oneway("n::oneway", self._oneway, Word)
        self.registry.server_stream("n::serverStream", self._server, Word, Word)
        self.registry.client_stream("n::clientStream", self._client, Word, Word)
        self.registry.duplex("n::duplex", self._duplex, Word, Word)

    def dispatcher(self, *middleware: Middleware) -> Dispatcher:
        return Dispatcher(self.registry, middleware)

    async def _unary(self, meta: RequestMeta, word: Word) -> Word | None:
        if word.text == "bug":
            raise ValueError("the inside of a bug")
        return Word(word.text.upper()) if word.text else None

    async def _oneway(self, meta: RequestMeta, word: Word) -> None:
        self.heard.append(word.text)

    async def _server(self, meta: RequestMeta, word: Word) -> AsyncGenerator[Word]:
        for letter in word.text:
            if letter == "!":
                raise ValueError("the inside of a bug")
            yield Word(letter)

    async def _client(self, meta: RequestMeta, words: AsyncIterator[Word]) -> Word:
        return Word("".join([word.text async for word in words]))

    async def _duplex(self, meta: RequestMeta, words: AsyncIterator[Word]) -> AsyncGenerator[Word]:
        async for word in words:
            if word.text == "!":
                raise ValueError("the inside of a bug")
            yield Word(word.text.upper())


KINDS = tuple(Kind)


async def said(*texts: str) -> AsyncGenerator[bytes]:
    for text in texts:
        yield JSON.encode(Word(text))


def request(verb: str, text: str = "", *more: str, **meta: Any) -> Request:
    """Streams from the caller say `text` and `more`. Any: fields of RequestMeta."""
    told = RequestMeta(procedure=f"n::{verb}", transport="memory", **meta)
    if verb in (Kind.CLIENT_STREAM, Kind.DUPLEX):
        return Request(told, inbound=said(text, *more))
    return Request(told, JSON.encode(Word(text)))


async def answers(reply: Reply) -> Sequence[str]:
    if isinstance(reply, Response):
        return [] if reply.empty else [JSON.decode(reply.body, Word).text]
    assert isinstance(reply, Stream)
    return [JSON.decode(message, Word).text async for message in reply.messages]
