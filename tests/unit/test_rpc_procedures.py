"""Procedures of five kinds, the registry that finds them, and the chain in front of them."""

import pytest

from omnirelay.model.errors import InvalidArgument, InvalidOption, Unimplemented
from omnirelay.rpc.codec import JSON, MSGPACK, Codec
from omnirelay.rpc.meta import Reply, Request, RequestMeta, Response
from omnirelay.rpc.procedure import Handler, Kind, Procedure, Registry
from tests.unit.rpc_parts import KINDS, Five, Word, answers, request


async def nothing(call: Request) -> Reply:
    return Response(empty=True)


@pytest.mark.parametrize("name", ["", "verb", "::", "n::", "::verb", "n:verb", "n/verb"])
def test_a_name_without_namespace_and_verb_is_refused(name: str) -> None:
    with pytest.raises(InvalidOption, match="namespace::verb"):
        Registry().add(Procedure(name=name, handler=nothing))


def test_a_name_is_served_once() -> None:
    """G36: a second component under one namespace is an error, not a surprise."""
    five = Five()
    with pytest.raises(InvalidOption, match="already"):
        five.registry.add(Procedure(name="n::unary", handler=nothing))
    with pytest.raises(InvalidOption, match="already"):
        five.registry.oneway("n::duplex", five._oneway, Word)


def test_a_name_that_is_not_served_is_unimplemented_and_its_echo_is_bounded() -> None:
    registry = Registry()
    with pytest.raises(Unimplemented) as refused:
        registry.find("n::" + "x" * 100_000)
    assert len(refused.value.message) < 300
    assert registry.kind_of("n::x") is None


def test_a_procedure_knows_its_two_names_and_its_kind() -> None:
    registry = Five().registry
    found = registry.find("n::serverStream")
    assert (found.namespace, found.verb, found.kind) == ("n", "serverStream", Kind.SERVER_STREAM)
    assert registry.kind_of("n::duplex") is Kind.DUPLEX
    assert [procedure.verb for procedure in registry] == [str(kind) for kind in KINDS]


async def test_every_kind_answers_in_its_way() -> None:
    five = Five()
    call = five.dispatcher()
    assert await answers(await call(request("unary", "a"))) == ["A"]
    assert await answers(await call(request("unary"))) == []
    assert await answers(await call(request("oneway", "a"))) == []
    assert await answers(await call(request("serverStream", "ab"))) == ["a", "b"]
    assert await answers(await call(request("clientStream", "a", "b"))) == ["ab"]
    assert await answers(await call(request("duplex", "a", "b"))) == ["A", "B"]
    assert five.heard == ["a"]


class Noted:
    """Middleware that writes down what it sees, and may refuse."""

    def __init__(self, name: str, notes: list[str], *, refuses: bool = False) -> None:
        self._name = name
        self._notes = notes
        self._refuses = refuses

    async def __call__(self, request: Request, procedure: Procedure, next_: Handler) -> Reply:
        self._notes.append(f"{self._name} in {procedure.verb}")
        if self._refuses:
            raise InvalidArgument(f"{self._name} says no")
        reply = await next_(request)
        self._notes.append(f"{self._name} out {type(reply).__name__}")
        return reply


@pytest.mark.parametrize("kind", KINDS)
async def test_the_same_chain_in_the_same_order_meets_every_kind(kind: Kind) -> None:
    notes: list[str] = []
    call = Five().dispatcher(Noted("outer", notes), Noted("inner", notes))
    reply = await call(request(kind, "a"))
    shape = type(reply).__name__
    assert notes == [
        f"outer in {kind}",
        f"inner in {kind}",
        f"inner out {shape}",
        f"outer out {shape}",
    ]
    await answers(reply)


@pytest.mark.parametrize("kind", KINDS)
async def test_what_middleware_refuses_reaches_neither_the_next_nor_the_handler(kind: Kind) -> None:
    notes: list[str] = []
    five = Five()
    call = five.dispatcher(Noted("outer", notes, refuses=True), Noted("inner", notes))
    with pytest.raises(InvalidArgument, match="outer says no"):
        await call(request(kind, "a"))
    assert notes == [f"outer in {kind}"]
    assert five.heard == []


async def test_what_is_registered_later_is_served_too() -> None:
    five = Five()
    call = five.dispatcher()
    with pytest.raises(Unimplemented):
        await call(request("later", "a"))
    five.registry.unary("n::later", five._unary, Word, Word)
    assert await answers(await call(request("later", "a"))) == ["A"]


@pytest.mark.parametrize("body", [b"{", b"[]", b'{"text":1}', b"\xff", b"[" * 100_000])
async def test_a_body_that_is_no_message_is_refused_by_name(body: bytes) -> None:
    meta = RequestMeta(procedure="n::unary", transport="memory")
    with pytest.raises(InvalidArgument, match="malformed body"):
        await Five().dispatcher()(Request(meta, body))


@pytest.mark.parametrize("codec", [JSON, MSGPACK])
def test_an_empty_body_is_a_message_without_members(codec: Codec) -> None:
    assert codec.decode(b"", Word) == Word()
    assert codec.decode(codec.encode(Word("é")), Word) == Word("é")


@pytest.mark.parametrize("body", [b"\xc1", b"\x93", b"\x81\xa4text\x01", b"\x91" * 100_000])
def test_a_messagepack_body_that_is_none_is_refused(body: bytes) -> None:
    with pytest.raises(InvalidArgument, match="malformed body"):
        MSGPACK.decode(body, Word)
