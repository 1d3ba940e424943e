"""Every identity case at the level of the middleware; each wire plays the same list again."""

import logging
import traceback
from collections.abc import Iterator

import msgspec
import pytest

from omnirelay.identity.certificates import certificate_of
from omnirelay.identity.settings import Identity, build_identity
from omnirelay.model.errors import OmniRelayError
from omnirelay.model.ports import SystemClock
from omnirelay.rpc.dispatcher import Dispatcher
from omnirelay.rpc.headers import Headers, meta_of
from omnirelay.rpc.meta import Request, Response
from omnirelay.testing import figures
from omnirelay.testing.identity_cases import CASES, Call, Case
from omnirelay.testing.identity_world import WHO, IdentityWorld, Who, who_registry


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[IdentityWorld]:
    world = IdentityWorld(tmp_path_factory.mktemp("identity"))
    yield world
    world.close()


def request_of(world: IdentityWorld, call: Call) -> Request:
    shown = None if call.client is None else certificate_of(world.clients[call.client].der)
    meta = meta_of(
        WHO,
        Headers(call.headers),
        transport="memory",
        clock=SystemClock(),
        address="127.0.0.1",
        certificate=shown,
    )
    return Request(meta)


async def ask(identity: Identity, world: IdentityWorld, call: Call) -> Who:
    dispatcher = Dispatcher(who_registry(), identity.middleware)
    reply = await dispatcher(request_of(world, call))
    assert isinstance(reply, Response)
    return msgspec.json.decode(reply.body, type=Who)


async def outcome(case: Case, world: IdentityWorld, call: Call) -> Who | OmniRelayError:
    settings = world.settings(proxied=case.proxied, anonymous=case.anonymous)
    identity = build_identity(settings, SystemClock())
    try:
        for _ in range(case.sends - 1):
            await ask(identity, world, call)
        return await ask(identity, world, call)
    except OmniRelayError as error:
        return error
    finally:
        await identity.close()


def secrets_of(call: Call) -> list[str]:
    """The tokens of a call, and their signatures by themselves."""
    values = [value for _, value in call.headers] + list(call.query.values())
    words = [word for value in values for word in value.replace("=", " ").split()]
    tokens = [word.strip(",") for word in words if word.count(".") >= 2]
    return [secret for token in tokens for secret in (token, token.rpartition(".")[2]) if secret]


@pytest.mark.parametrize("case", [pytest.param(case, id=case.name) for case in CASES])
async def test_a_caller_is_who_it_can_prove_to_be_and_no_secret_gets_out(
    case: Case, world: IdentityWorld, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    call = case.call(world)
    came = await outcome(case, world, call)
    is_wrong = isinstance(came, Who) and came.principal != case.accepted_as
    figures.record("identity", cases=1, server_errors=0, wrongly_accepted=int(is_wrong))
    if case.accepted_as is not None:
        assert isinstance(came, Who), came
        assert came.principal == case.accepted_as
    else:
        assert isinstance(came, case.refused_with), came
    said = repr(came) + caplog.text + "".join(map(repr, caplog.records))
    if isinstance(came, OmniRelayError):
        said += repr(came.details) + "".join(traceback.format_exception(came))
    for secret in secrets_of(call):
        assert secret not in said


def test_the_names_of_the_cases_are_their_own() -> None:
    names = [case.name for case in CASES]
    assert len(names) == len(set(names)) > 100
