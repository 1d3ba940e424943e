"""Whatever a caller passes in: a clear refusal, nothing lost, and the queue goes on."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

import omnirelay
from omnirelay import InvalidArgument, KeepOptions, OmniRelayError, Payload, QueueOptions, Relay
from omnirelay.model import limits
from omnirelay.model.errors import InvalidOption, InvalidPayload
from tests.embedded.places import EMBEDDED, ONE_WIRE, Place
from tests.embedded.signals import counts, kinds

pytestmark = pytest.mark.places(*ONE_WIRE)

LONG = "x" * (limits.NAME_CHARS_MAX + 1)
SURROGATE = "name \udce9"

# Any: wrong types on purpose, which no annotation would let through.
Call = Callable[[Any], Awaitable[object]]

WRONG: dict[str, Call] = {
    "blank type": lambda r: r.enqueue(" ", "a"),
    "empty type": lambda r: r.enqueue("", "a"),
    "blank id": lambda r: r.enqueue("table", "\t\n"),
    "type none": lambda r: r.enqueue(None, "a"),
    "id number": lambda r: r.enqueue("table", 7),
    "id bytes": lambda r: r.enqueue("table", b"a"),
    "long type": lambda r: r.enqueue(LONG, "a"),
    "long id": lambda r: r.enqueue("table", LONG),
    "long key": lambda r: r.enqueue("table", "a", partition_key=LONG),
    "long request": lambda r: r.enqueue("table", "a", request_id=LONG),
    "id no utf8": lambda r: r.enqueue("table", SURROGATE),
    "key no utf8": lambda r: r.enqueue("table", "a", partition_key=SURROGATE),
    "key number": lambda r: r.enqueue("table", "a", partition_key=7),
    "request number": lambda r: r.enqueue("table", "a", request_id=7),
    "encoding none": lambda r: r.enqueue("table", "a", payload_encoding=None),
    "body text": lambda r: r.enqueue("table", "a", body="text"),
    "body array": lambda r: r.enqueue("table", "a", body=bytearray(b"x")),
    "body none": lambda r: r.enqueue("table", "a", body=None),
    "body huge": lambda r: r.enqueue("table", "a", body=bytes(limits.BODY_BYTES_MAX + 1)),
    "attributes list": lambda r: r.enqueue("table", "a", attributes=["x"]),
    "attributes number": lambda r: r.enqueue("table", "a", attributes={"x": 1}),
    "attributes object": lambda r: r.enqueue("table", "a", attributes=object()),
    "attributes no utf8": lambda r: r.enqueue("table", "a", attributes={"x": SURROGATE}),
    "attributes many": lambda r: r.enqueue(
        "table", "a", attributes={str(n): "" for n in range(limits.ATTRIBUTES_MAX + 1)}
    ),
    "delay text": lambda r: r.enqueue("table", "a", delay="soon"),
    "delay nan": lambda r: r.enqueue("table", "a", delay=float("nan")),
    "delay endless": lambda r: r.enqueue("table", "a", delay=float("inf")),
    "priority text": lambda r: r.enqueue("table", "a", priority="high"),
    "priority half": lambda r: r.enqueue("table", "a", priority=0.5),
    "priority huge": lambda r: r.enqueue("table", "a", priority=1 << 80),
    "attempts text": lambda r: r.enqueue("table", "a", max_attempts="5"),
    "attempts yes": lambda r: r.enqueue("table", "a", max_attempts=True),
    "duration text": lambda r: r.enqueue("table", "a", lease_duration="long"),
    "wait text": lambda r: r.lease_many(1, wait="long"),
    "wait nan": lambda r: r.lease_many(1, wait=float("nan")),
    "types one text": lambda r: r.lease_many(1, types="table"),
    "types numbers": lambda r: r.lease_many(1, types=[1]),
    "types lists": lambda r: r.lease_many(1, types=[[]]),
    "types too many": lambda r: r.lease_many(1, types=[str(n) for n in range(65)]),
    "types no utf8": lambda r: r.lease_many(1, types=[SURROGATE]),
    "items text": lambda r: r.lease_many("many"),
    "items none": lambda r: r.lease_many(None),
    "items half": lambda r: r.lease_many(1.5),
    "lease request": lambda r: r.lease_many(1, request_id=7),
    "lease request long": lambda r: r.lease_many(1, request_id=LONG),
    "lease duration": lambda r: r.lease_many(1, duration="x"),
    "lease duration short": lambda r: r.lease_many(1, duration=0.001),
    "lease peer": lambda r: r.lease_many(1, peer_id=7),
    "lease peer blank": lambda r: r.lease_many(1, peer_id=" "),
    "complete others": lambda r: r.complete_many(["lease"]),
    "inspect text": lambda r: r.inspect("1"),
    "inspect list": lambda r: r.inspect([]),
    "drain text": lambda r: r.drain("all"),
    "drain flag": lambda r: r.drain(include_active="no"),
    "restore numbers": lambda r: r.restore([1]),
    "restore dicts": lambda r: r.restore([{"sequenceId": 1}]),
    "dead text": lambda r: r.dead_letters("all"),
    "dead after": lambda r: r.dead_letters(after="x"),
    "redrive text": lambda r: r.redrive("1"),
    "redrive filter": lambda r: r.redrive(resource_type=7),
    "purge text": lambda r: r.purge("1"),
}


@pytest.mark.parametrize("call", WRONG.values(), ids=WRONG.keys())
async def test_wrong_input_is_refused_and_the_queue_goes_on(relay: Relay, call: Call) -> None:
    await relay.enqueue("table", "before")
    with pytest.raises(InvalidArgument) as refused:
        await call(relay)
    assert len(refused.value.message) > 10
    assert await kinds(relay) == ["Enqueue"]
    async with relay.lease() as lease:
        assert lease.resource_id == "before"
    assert (await relay.stats()).epoch == 1, "nothing had to be recovered"


async def test_blank_names_keep_the_codes_of_the_contract(relay: Relay) -> None:
    for call, code in (
        (relay.enqueue("", "a"), "resourcelease.payload.resource_type_required"),
        (relay.enqueue("table", " "), "resourcelease.payload.resource_id_required"),
    ):
        with pytest.raises(InvalidPayload) as refused:
            await call
        assert refused.value.code == code
    outcomes = await relay.enqueue_many([None])  # type: ignore[list-item]
    assert isinstance(outcomes[0], InvalidPayload)
    assert outcomes[0].code == "resourcelease.payload.required"


async def test_the_largest_body_is_taken_and_comes_back_whole(relay: Relay) -> None:
    body = bytes(range(256)) * (limits.BODY_BYTES_MAX // 256)
    await relay.enqueue("table", "a", body=body)
    assert (await relay.lease()).body == body


async def test_text_of_any_script_is_taken_and_comes_back_whole(relay: Relay) -> None:
    name = "訂單/Größe\u0000\u2028🦆"
    await relay.enqueue(name, name, partition_key=name, attributes={name: name}, request_id=name)
    lease = await relay.lease(types=[name])
    assert lease.payload == Payload(name, name, name, attributes={name: name}, request_id=name)
    assert await counts(relay) == (0, 1)


@pytest.mark.parametrize("after", [-1, "1", None, 1.5, True])
async def test_a_place_in_the_journal_is_a_sequence(relay: Relay, after: Any) -> None:
    with pytest.raises(InvalidArgument, match="sequence"):
        relay.events(after)


@pytest.mark.parametrize(
    "wrong",
    [
        {"reason": 7},
        {"error_code": b"x"},
        {"metadata": {"a": 1}},
        {"metadata": ["a"]},
        {"requeue": "yes"},
        {"delay": "soon"},
    ],
)
async def test_a_wrong_report_is_refused_and_the_lease_is_held_as_before(
    relay: Relay, wrong: dict[str, Any]
) -> None:
    await relay.enqueue("table", "a")
    async with relay.lease() as lease:
        with pytest.raises(InvalidArgument):
            await lease.fail(**wrong)
        assert not lease.is_over
    assert (await kinds(relay))[-1] == "Completed"


# -- opening ------------------------------------------------------------------------------------

WRONG_SETTINGS: dict[str, dict[str, Any]] = {
    "namespace blank": {"namespace": " "},
    "namespace number": {"namespace": 7},
    "namespace long": {"namespace": LONG},
    "namespace no utf8": {"namespace": SURROGATE},
    "options dict": {"options": {"capacity": 1}},
    "keep dict": {"keep": {"retain_ms": 1}},
    "keep text": {"keep": KeepOptions(snapshot_every="often")},  # type: ignore[arg-type]
    "require": {"require": "everything"},
    "peer blank": {"peer_id": ""},
    "peer number": {"peer_id": 7},
}


@pytest.mark.places(*EMBEDDED)
@pytest.mark.parametrize("settings", WRONG_SETTINGS.values(), ids=WRONG_SETTINGS.keys())
async def test_wrong_settings_are_refused_before_the_queue_opens(
    place: Place, settings: dict[str, Any]
) -> None:
    with pytest.raises(OmniRelayError):
        await place.connect(**settings)
    with pytest.raises(OmniRelayError):
        place.connect_sync(**settings)
    await (await place.connect()).close()  # and the file is free


@pytest.mark.parametrize(
    "options",
    [
        {"capacity": "many"},
        {"capacity": 0},
        {"lease_duration_ms": 1.5},
        {"pending_low": 1},
        {"pending_high": 5, "pending_low": 5},
        {"requeue_backoff": 0.5},
        {"serialize_by": "colour"},
    ],
)
def test_options_that_cannot_work_are_refused_when_they_are_written(
    options: dict[str, Any],
) -> None:
    with pytest.raises(InvalidOption):
        QueueOptions(**options)


@pytest.mark.parametrize(
    "address",
    [
        "",
        "leases.db",
        "http//x",
        "cassandra://h/0",
        "sqlite:",
        "sqlite:///",
        "sqlite://h/x",
        7,
        None,
    ],
)
async def test_an_address_nobody_serves_is_refused_by_name(address: Any) -> None:
    with pytest.raises(InvalidOption, match="sqlite:///"):
        await omnirelay.connect(address)
    with pytest.raises(InvalidOption, match="sqlite:///"):
        omnirelay.connect_sync(address)
