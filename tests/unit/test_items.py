"""What travels: tokens read and written, times to the millisecond, payloads refused by reason."""

from datetime import datetime

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnirelay.model import limits
from omnirelay.model.errors import InvalidArgument, InvalidPayload
from omnirelay.model.items import Payload, PendingItem, Token, check_payload, to_ms, to_time
from omnirelay.testing import strategies

HEX = "0123456789abcdef" * 2


@given(strategies.tokens())
def test_a_token_is_read_back_from_its_text_without_its_fence(token: Token) -> None:
    assert Token.parse(str(token)) == Token(token.sequence_id, token.attempt, token.lease_id)


def test_a_token_is_read_whatever_the_case_of_its_digits() -> None:
    assert Token.parse(f"7:2:{HEX.upper()}") == Token.parse(f"7:2:{HEX}")
    assert Token.parse(f"7:2:{HEX}").lease_id == "01234567-89ab-cdef-0123-456789abcdef"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1:2",
        f"1:2:{HEX}:4",
        f"1:2:{HEX[:-1]}",
        f"1:2:{HEX}0",
        f"1:2:{HEX[:-1]}g",
        f"1:2:0x{HEX[:-2]}",
        f"1:2:{HEX[:15]}_{HEX[16:]}",
        f"-1:2:{HEX}",
        f"+1:2:{HEX}",
        f" 1:2:{HEX}",
        f"1_0:2:{HEX}",
        f"\u0661:2:{HEX}",
        f"1.0:2:{HEX}",
        f":2:{HEX}",
        f"{'9' * 5000}:2:{HEX}",
        f"1:2:{HEX}\n",
    ],
)
def test_what_is_not_a_token_is_refused(text: str) -> None:
    with pytest.raises(InvalidArgument, match="not a token"):
        Token.parse(text)


@given(st.integers(-62_000_000_000_000, 250_000_000_000_000))
def test_a_time_keeps_its_milliseconds(ms: int) -> None:
    assert to_ms(to_time(ms)) == ms


def test_a_time_without_a_zone_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="zone"):
        to_ms(datetime(2026, 1, 1))


@given(strategies.payloads)
def test_a_payload_within_its_limits_is_taken(payload: Payload) -> None:
    check_payload(payload)


@given(strategies.pending_items())
def test_a_drained_item_survives_the_wire(item: PendingItem) -> None:
    assert msgspec.json.decode(msgspec.json.encode(item), type=PendingItem) == item


@given(strategies.names, strategies.blanks)
def test_a_blank_resource_is_refused_by_its_own_code(name: str, blank: str) -> None:
    for payload, reason in (
        (Payload(blank, name), "resource_type_required"),
        (Payload(name, blank), "resource_id_required"),
    ):
        with pytest.raises(InvalidPayload) as refused:
            check_payload(payload)
        assert refused.value.code == f"resourcelease.payload.{reason}"
        assert refused.value.status == "INVALID_ARGUMENT"


LONG = "x" * (limits.NAME_CHARS_MAX + 1)


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (Payload("t", "i", body=bytes(limits.BODY_BYTES_MAX + 1)), "body_too_large"),
        (Payload(LONG, "i"), "name_too_long"),
        (Payload("t", LONG), "name_too_long"),
        (Payload("t", "i", LONG), "name_too_long"),
        (Payload("t", "i", payload_encoding=LONG), "name_too_long"),
        (Payload("t", "i", request_id=LONG), "name_too_long"),
        (Payload("t", "i", attributes={LONG: ""}), "attribute_too_long"),
        (
            Payload("t", "i", attributes={"a": "x" * (limits.ATTRIBUTE_CHARS_MAX + 1)}),
            "attribute_too_long",
        ),
        (
            Payload("t", "i", attributes={str(n): "" for n in range(limits.ATTRIBUTES_MAX + 1)}),
            "too_many_attributes",
        ),
    ],
    ids=lambda part: part if isinstance(part, str) else "",
)
def test_a_payload_past_a_limit_is_refused_by_reason(payload: Payload, reason: str) -> None:
    with pytest.raises(InvalidPayload) as refused:
        check_payload(payload)
    assert refused.value.code == f"resourcelease.payload.{reason}"


def test_a_payload_at_every_limit_is_taken() -> None:
    name = "x" * limits.NAME_CHARS_MAX
    check_payload(
        Payload(
            name,
            name,
            name,
            name,
            bytes(limits.BODY_BYTES_MAX),
            {f"{n:0512}": "x" * limits.ATTRIBUTE_CHARS_MAX for n in range(limits.ATTRIBUTES_MAX)},
            name,
        )
    )
