"""Structs cross as protobuf messages and come back the same, or are refused by name."""

from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from google.protobuf.timestamp_pb2 import Timestamp
from hypothesis import given, settings
from hypothesis import strategies as st

from omnirelay.journal.events import Event
from omnirelay.mesh import wire
from omnirelay.model import items, limits
from omnirelay.model.errors import InvalidArgument, InvalidOption
from omnirelay.model.items import Payload, Token
from omnirelay.rpc.codec import JSON
from omnirelay.transports.grpc_codec import PROTO, ProtoCodec, messages_of
from omnirelay.transports.proto import resource_lease_pb2 as pb
from tests.wire.struct_strategies import structs

TOKEN = Token(7, 1, "00000000-0000-0000-0000-000000000007", 7)


def travelling_structs() -> list[type]:
    messages = pb.DESCRIPTOR.message_types_by_name
    named = (getattr(wire, name, None) or getattr(items, name, None) for name in messages)
    return [kind for kind in named if isinstance(kind, type)]


def assert_read_or_refused(body: bytes, kind: type) -> None:
    with suppress(InvalidArgument):
        decoded: Any = PROTO.decode(body, kind)
        assert isinstance(decoded, kind)


@pytest.mark.parametrize("kind", travelling_structs(), ids=lambda kind: kind.__name__)
@settings(max_examples=15)
@given(data=st.data())
def test_every_struct_comes_back_as_it_went(kind: type, data: st.DataObject) -> None:
    sent = data.draw(structs(kind))
    assert PROTO.decode(PROTO.encode(sent), kind) == sent


@settings(max_examples=200)
@given(st.sampled_from(travelling_structs()), st.binary(max_size=64))
def test_bytes_that_are_no_message_are_refused_by_name_and_by_nothing_else(
    kind: type, body: bytes
) -> None:
    assert_read_or_refused(body, kind)


@settings(max_examples=100)
@given(data=st.data())
def test_what_is_cut_off_or_overwritten_is_refused_by_name(data: st.DataObject) -> None:
    body = bytearray(PROTO.encode(data.draw(structs(wire.LeaseBatchResponse))))
    at = data.draw(st.integers(0, len(body)))
    damaged = bytes(body[:at] + data.draw(st.binary(max_size=3)))
    assert_read_or_refused(damaged, wire.LeaseBatchResponse)


def test_what_is_left_out_is_the_default_of_the_struct() -> None:
    body = pb.FailRequest(ownership_token=pb.Token(sequence_id=1)).SerializeToString()
    request = PROTO.decode(body, wire.FailRequest)
    assert request.requeue is True
    assert request.ownership_token == Token(1, 0, "")
    assert PROTO.decode(b"", wire.DrainRequest) == wire.DrainRequest()
    assert PROTO.decode(pb.Payload().SerializeToString(), Payload).payload_encoding == (
        "application/octet-stream"
    )


def test_a_default_does_not_travel_and_its_opposite_does() -> None:
    assert PROTO.encode(wire.DrainRequest()) == b""
    opposite = wire.FailRequest(TOKEN, requeue=False, reason="", delay_ms=0)
    assert PROTO.decode(PROTO.encode(opposite), wire.FailRequest) == opposite


def test_a_missing_message_is_named() -> None:
    with pytest.raises(InvalidArgument, match="ownershipToken"):
        PROTO.decode(b"", wire.TokenRequest)


def test_the_bounds_of_a_struct_hold_as_they_do_for_json() -> None:
    too_many = pb.LeaseRequest(resource_types=["t"] * (limits.RESOURCE_TYPES_MAX + 1))
    for body in (
        pb.LeaseRequest(wait_ms=-1).SerializeToString(),
        pb.LeaseRequest(peer_id="p" * (limits.NAME_CHARS_MAX + 1)).SerializeToString(),
        too_many.SerializeToString(),
    ):
        with pytest.raises(InvalidArgument, match="malformed body"):
            PROTO.decode(body, wire.LeaseRequest)


def test_a_field_of_a_newer_caller_is_ignored() -> None:
    newer = PROTO.encode(wire.TokenRequest(TOKEN)) + b"\x92\x03\x05later"
    assert PROTO.decode(newer, wire.TokenRequest) == wire.TokenRequest(TOKEN)


def test_naming_no_item_is_not_the_same_as_naming_none_in_particular() -> None:
    for selection in (wire.DeadSelection(sequence_ids=()), wire.DeadSelection()):
        assert PROTO.decode(PROTO.encode(selection), wire.DeadSelection) == selection


def test_an_empty_list_that_would_arrive_as_none_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="resource_types"):
        PROTO.encode(wire.LeaseRequest(resource_types=()))


@pytest.mark.parametrize(
    "request_",
    [
        wire.EnqueueRequest(priority=1 << 70),
        wire.EnqueueRequest(Payload("table", "\ud800")),
        wire.EnqueueRequest(Payload("table", "orders", body="text")),  # type: ignore[arg-type]
    ],
    ids=["number too large", "half a character", "text for bytes"],
)
def test_what_protobuf_cannot_hold_is_refused_before_it_leaves(request_: Any) -> None:
    with pytest.raises(InvalidArgument, match="EnqueueRequest"):
        PROTO.encode(request_)


def test_a_time_without_a_zone_is_refused() -> None:
    naive = datetime(2026, 1, 1)
    with pytest.raises(InvalidArgument, match="HeartbeatResponse"):
        PROTO.encode(wire.HeartbeatResponse(True, naive, 1))


@pytest.mark.parametrize("stamp", [Timestamp(seconds=1 << 60), Timestamp(nanos=-1)])
def test_a_time_nobody_lives_to_see_is_refused(stamp: Timestamp) -> None:
    body = pb.HeartbeatResponse(success=True, expires_at=stamp).SerializeToString()
    with pytest.raises(InvalidArgument, match="malformed body"):
        PROTO.decode(body, wire.HeartbeatResponse)


def test_times_keep_their_microseconds() -> None:
    for time in (
        datetime(2026, 1, 1, 0, 0, 0, 123_457, UTC),
        datetime(1, 1, 1, tzinfo=UTC),
        datetime(9999, 12, 31, 23, 59, 59, 999_999, UTC),
    ):
        sent = wire.HeartbeatResponse(True, time, 1)
        assert PROTO.decode(PROTO.encode(sent), wire.HeartbeatResponse) == sent


class Unknown(msgspec.Struct):
    text: str = ""


def test_a_struct_without_a_message_travels_as_json() -> None:
    assert PROTO.encode(Unknown("a")) == JSON.encode(Unknown("a"))
    assert PROTO.decode(b'{"text":"a"}', Unknown) == Unknown("a")


# -- structs and messages that do not fit -------------------------------------------------------


def renamed(fields: list[Any], name: str = "ErrorInfo") -> type[msgspec.Struct]:
    return msgspec.defstruct(name, fields)


@pytest.mark.parametrize(
    ("kind", "complaint"),
    [
        (renamed([("message", str)]), "code is only in its message"),
        (renamed([("message", str), ("code", str | None, None), ("more", int, 0)]), "no such"),
        (renamed([("message", str | None, None), ("code", str | None, None)]), "optional"),
        (renamed([("message", str, "unsaid"), ("code", str | None, None)]), "optional"),
        (renamed([("message", dict[str, str]), ("code", str | None, None)]), "no map"),
        (renamed([("message", list[str]), ("code", str | None, None)]), "neither"),
        (renamed([("message", Token), ("code", str | None, None)]), "another message"),
        (renamed([("message", int | str), ("code", str | None, None)]), "several types"),
    ],
)
def test_a_struct_that_drifted_from_its_message_is_refused(kind: type, complaint: str) -> None:
    codec = ProtoCodec(messages_of(pb))
    with pytest.raises(InvalidOption, match=complaint):
        codec.decode(b"", kind)


def test_every_message_but_the_wrapper_has_its_struct() -> None:
    known = {kind.__name__ for kind in travelling_structs()} | {Event.__name__, "EventItem"}
    assert set(pb.DESCRIPTOR.message_types_by_name) - known == {"SequenceIds"}
