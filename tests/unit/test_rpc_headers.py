"""The headers of CONTRACT §1, in and out, and what must not be believed of them."""

from datetime import UTC, datetime
from urllib.parse import unquote

import pytest

from omnirelay.model import limits
from omnirelay.model.errors import InvalidArgument, OmniRelayError, QueueFull, TooLarge
from omnirelay.rpc.headers import (
    Headers,
    call_headers,
    codec_of,
    error_headers,
    expiry,
    meta_of,
    reply_headers,
)
from omnirelay.rpc.meta import RequestMeta
from omnirelay.testing.clock import HandClock

CLOCK = HandClock(wall_ahead_ms=1_700_000_000_000)


def meta(**headers: str) -> RequestMeta:
    pairs = [(name.replace("_", "-"), value) for name, value in headers.items()]
    return meta_of("n::v", Headers(pairs), transport="http", clock=CLOCK)


def iso(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat()


# -- in -----------------------------------------------------------------------------------------


def test_names_count_in_any_case_and_a_doubled_one_is_remembered() -> None:
    headers = Headers([("X-Peer-ID", "a"), ("x-peer-id", "b"), ("Rpc-Caller", "c")])
    assert headers.values == {"x-peer-id": "a, b", "rpc-caller": "c"}
    assert headers.doubled == {"x-peer-id"}


def test_too_many_or_too_long_headers_are_refused() -> None:
    Headers((f"h{number}", "") for number in range(limits.HEADERS_MAX))
    with pytest.raises(TooLarge):
        Headers((f"h{number}", "") for number in range(limits.HEADERS_MAX + 1))
    with pytest.raises(TooLarge):
        Headers([("h", "x" * limits.HEADER_BYTES_MAX)])
    with pytest.raises(TooLarge):
        Headers([("h", "x" * 1000)] * 40)


def test_every_header_of_the_contract_reaches_the_call() -> None:
    told = meta(
        Rpc_Caller="me",
        Rpc_Encoding="msgpack",
        Rpc_Shard_Key="s",
        Rpc_Routing_Key="r",
        Rpc_Routing_Delegate="d",
        x_peer_id="w",
    )
    assert (told.caller, told.encoding, told.shard_key) == ("me", "msgpack", "s")
    assert (told.routing_key, told.routing_delegate, told.peer_id) == ("r", "d", "w")
    assert (told.principal, told.proof) == ("anonymous", None)
    assert (told.namespace, told.verb) == ("n", "v")
    assert codec_of(told).name == "msgpack"


@pytest.mark.parametrize("name", ["Rpc_Caller", "Rpc_Shard_Key", "Rpc_Routing_Key", "x_peer_id"])
def test_a_blank_name_is_none_and_a_long_one_is_refused(name: str) -> None:
    """G39: not an empty text."""
    told = meta(**{name: "  "})
    assert (told.caller, told.shard_key, told.routing_key, told.peer_id) == (None,) * 4
    with pytest.raises(InvalidArgument):
        meta(**{name: "x" * (limits.NAME_CHARS_MAX + 1)})


def test_an_encoding_nobody_knows_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="pickle"):
        codec_of(meta(Rpc_Encoding="pickle"))


@pytest.mark.parametrize(
    ("text", "ms"),
    [("0", 0), ("1", 1), ("1500", 1500), ("0.5", 1), ("1500.25", 1501), ("2.", 2), (" 7 ", 7)],
)
def test_a_time_to_live_may_be_a_fraction(text: str, ms: int) -> None:
    """G37: the original sent decimals and dropped them when read."""
    assert meta(Rpc_Ttl_Ms=text).expires_ms == CLOCK.now_ms + ms


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "-1",
        "+1",
        "1e3",
        "nan",
        "inf",
        "0x10",
        "1_000",
        "1,5",
        "5, 5",
        "٣",
        "9" * 30,
        "1 s",
    ],
)
def test_a_time_to_live_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(InvalidArgument, match="Rpc-Ttl-Ms"):
        meta(Rpc_Ttl_Ms=text)


def test_a_day_is_the_longest_time_to_live() -> None:
    assert meta(Rpc_Ttl_Ms="86400000").expires_ms == CLOCK.now_ms + 86_400_000
    with pytest.raises(InvalidArgument):
        meta(Rpc_Ttl_Ms="86400001")


def test_a_deadline_counts_on_the_monotonic_clock_and_the_earlier_end_wins() -> None:
    in_two = iso(CLOCK.wall_ms() + 2_000)
    assert meta(Rpc_Deadline=in_two).expires_ms == CLOCK.now_ms + 2_000
    assert meta(Rpc_Deadline=in_two, Rpc_Ttl_Ms="1000").expires_ms == CLOCK.now_ms + 1_000
    assert meta(Rpc_Deadline=in_two, Rpc_Ttl_Ms="3000").expires_ms == CLOCK.now_ms + 2_000
    assert meta(Rpc_Deadline=in_two.replace("+00:00", "Z")).expires_ms == CLOCK.now_ms + 2_000
    assert meta(Rpc_Deadline=iso(CLOCK.wall_ms() - 1)).expires_ms == CLOCK.now_ms - 1
    assert expiry({}, CLOCK) is None


@pytest.mark.parametrize(
    "text", ["", "soon", "2026-01-01", "2026-01-01T00:00:00", "1700000000", "2026-13-01T00:00:00Z"]
)
def test_a_deadline_without_a_zone_or_a_time_is_refused(text: str) -> None:
    with pytest.raises(InvalidArgument, match="Rpc-Deadline"):
        meta(Rpc_Deadline=text)


@pytest.mark.parametrize("text", ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00"])
def test_the_ends_of_the_calendar_are_deadlines_too(text: str) -> None:
    assert meta(Rpc_Deadline=text).expires_ms is not None


# -- out ----------------------------------------------------------------------------------------


def test_an_answer_names_transport_protocol_encoding_and_shard() -> None:
    told = RequestMeta(procedure="n::v", transport="http", shard_key="a b/ü\r\nx: y")
    headers = reply_headers(told)
    assert headers["Rpc-Transport"] == "http"
    assert headers["Rpc-Protocol"] == "omnirelay-v1"
    assert headers["Rpc-Encoding"] == "json"
    assert headers["Rpc-Shard-Key"].isascii()
    assert "\n" not in headers["Rpc-Shard-Key"]
    assert unquote(headers["Rpc-Shard-Key"]) == "a b/ü\r\nx: y"
    assert "Rpc-Shard-Key" not in reply_headers(RequestMeta(procedure="n::v", transport="http"))


def test_an_error_fits_into_headers_whatever_its_text() -> None:
    """G38: a newline or a letter of another script in a message cannot break the answer."""
    headers = error_headers(OmniRelayError("nö\r\nSet-Cookie: a=b"))
    assert all(value.isascii() and value.isprintable() for value in headers.values())
    assert unquote(headers["Rpc-Error-Message"]) == "nö\r\nSet-Cookie: a=b"
    assert (headers["Rpc-Status"], headers["Rpc-Error-Code"]) == ("INTERNAL", "error.internal")
    assert "Retry-After" not in headers
    assert error_headers(QueueFull(1, 1))["Retry-After"] == "1"


@pytest.mark.parametrize("letter", ["x", "%", "é", "€", "\U0001f600", "\n"])
def test_a_long_message_is_cut_at_a_whole_letter(letter: str) -> None:
    header = error_headers(OmniRelayError(letter * 100_000))["Rpc-Error-Message"]
    assert 1000 < len(header) <= 4096
    assert set(unquote(header)) == {letter}


def test_an_outbound_passes_names_and_trace_on_and_no_secret() -> None:
    told = RequestMeta(
        procedure="n::v",
        transport="http",
        caller="me",
        shard_key="s",
        peer_id="w",
        headers={"traceparent": "00-1-2-01", "authorization": "Bearer x", "cookie": "y"},
    )
    assert call_headers(told) == {
        "rpc-caller": "me",
        "rpc-shard-key": "s",
        "x-peer-id": "w",
        "traceparent": "00-1-2-01",
    }
