"""Every identity case over every wire: the same caller is the same principal everywhere."""

import logging
from collections.abc import Iterator

import pytest
from _pytest.mark import ParameterSet

from omnirelay.testing import figures
from omnirelay.testing.identity_cases import BAD_CLIENTS, CASES, Call, Case
from omnirelay.testing.identity_world import IdentityWorld
from tests.identity.wires import WIRES, Heard, is_cut_off, served


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[IdentityWorld]:
    world = IdentityWorld(tmp_path_factory.mktemp("identity"))
    yield world
    world.close()


def plays() -> Iterator[ParameterSet]:
    for case in CASES:
        for wire in WIRES:
            yield pytest.param(wire, case, id=f"{case.name} over {wire}")


def tokens_of(call: Call) -> list[str]:
    values = [value for _, value in call.headers] + list(call.query.values())
    words = [word for value in values for word in value.replace("=", " ").split()]
    return [word.strip(",") for word in words if word.count(".") >= 2]


@pytest.mark.parametrize(("wire", "case"), list(plays()))
async def test_a_caller_is_who_it_can_prove_to_be(
    wire: str, case: Case, world: IdentityWorld, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    call = case.call(world)
    async with served(WIRES[wire], world, case, secure=call.client is not None) as url:
        for _ in range(case.sends - 1):
            assert (await WIRES[wire].ask(url, call, world)).who is not None
        heard = await WIRES[wire].ask(url, call, world)
    is_wrong = heard.who is not None and heard.who.principal != case.accepted_as
    is_fault = heard.status in ("INTERNAL", "DATA_LOSS")
    figures.record("identity", cases=1, server_errors=int(is_fault), wrongly_accepted=int(is_wrong))
    if case.accepted_as is not None:
        assert heard.who is not None, heard
        assert heard.who.principal == case.accepted_as
    else:
        refusals = [kind.status for kind in case.refused_with]
        assert heard.status in refusals + WIRES[wire].refuses_itself(call), heard
    said = heard.said + caplog.text
    assert [token for token in tokens_of(call) if token in said] == []


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("client", BAD_CLIENTS)
async def test_a_bad_certificate_is_nobodys_way_in(
    wire: str, client: str, world: IdentityWorld
) -> None:
    case = Case(name=client, call=lambda world: Call(client=client))
    heard = None
    async with served(WIRES[wire], world, case, secure=True) as url:
        try:
            heard = await WIRES[wire].ask(url, case.call(world), world)
        except Exception as error:
            if not is_cut_off(error):
                raise
    is_wrong = isinstance(heard, Heard) and heard.who is not None
    figures.record("identity", cases=1, server_errors=0, wrongly_accepted=int(is_wrong))
    assert not is_wrong
    assert heard is None or heard.status in ("UNAUTHENTICATED", "UNAVAILABLE")
