"""The headers of CONTRACT §1, read once for every transport that has headers."""

import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from functools import lru_cache
from math import ceil
from types import MappingProxyType
from urllib.parse import quote, unquote

from omnirelay.model import limits
from omnirelay.model.errors import InvalidArgument, OmniRelayError, TooLarge
from omnirelay.model.ports import Clock
from omnirelay.rpc.codec import CODECS, Codec
from omnirelay.rpc.meta import Certificate, RequestMeta
from omnirelay.rpc.status import retry_after_s

PROCEDURE = "rpc-procedure"
CALLER = "rpc-caller"
ENCODING = "rpc-encoding"
SHARD_KEY = "rpc-shard-key"
ROUTING_KEY = "rpc-routing-key"
ROUTING_DELEGATE = "rpc-routing-delegate"
TTL_MS = "rpc-ttl-ms"
DEADLINE = "rpc-deadline"
PEER_ID = "x-peer-id"

PROTOCOL = "omnirelay-v1"

# Python's own `float` would also take signs, underscores, nan and the digits of any script.
_NUMBER = re.compile(r"[0-9]{1,15}(\.[0-9]{0,15})?")
_MESSAGE_CHARS = 1024
"""Of an error's text in a header; common readers give up at 8 KB a line. The body has all."""


class Headers:
    """Names in lower case; one that came twice is remembered, since two proofs may disagree."""

    __slots__ = ("doubled", "values")

    def __init__(self, pairs: Iterable[tuple[str, str]]) -> None:
        """Raises TooLarge beyond the limits on headers."""
        self.values: dict[str, str] = {}
        self.doubled: frozenset[str] = frozenset()
        size = 0
        for name, value in pairs:
            name = name.lower()
            size += len(name) + len(value)
            if name in self.values:
                self.doubled |= {name}
                value = f"{self.values[name]}, {value}"
            self.values[name] = value
        if len(self.values) > limits.HEADERS_MAX or size > limits.HEADER_BYTES_MAX:
            raise TooLarge(
                f"the headers have {len(self.values)} names and {size} bytes; at most "
                f"{limits.HEADERS_MAX} and {limits.HEADER_BYTES_MAX}"
            )


def meta_of(
    procedure: str,
    headers: Headers,
    *,
    transport: str,
    clock: Clock,
    address: str = "",
    certificate: Certificate | None = None,
) -> RequestMeta:
    values = headers.values
    return RequestMeta(
        procedure=procedure,
        transport=transport,
        caller=_named(values, CALLER),
        encoding=values.get(ENCODING, "json"),
        shard_key=_named(values, SHARD_KEY),
        routing_key=_named(values, ROUTING_KEY),
        routing_delegate=_named(values, ROUTING_DELEGATE),
        expires_ms=expiry(values, clock),
        headers=values,
        doubled=headers.doubled,
        address=address,
        certificate=certificate,
        peer_id=_named(values, PEER_ID),
    )


def codec_of(meta: RequestMeta) -> Codec:
    codec = CODECS.get(meta.encoding)
    if codec is None:
        raise InvalidArgument(
            f"the encoding {meta.encoding[:40]!r} is not known here: use {' or '.join(CODECS)}"
        )
    return codec


def expiry(values: Mapping[str, str], clock: Clock) -> int | None:
    """Whichever of time-to-live and deadline ends first, on this process's monotonic clock."""
    now = clock.monotonic_ms()
    ends = []
    if (ttl := values.get(TTL_MS)) is not None:
        ends.append(now + _ttl_ms(ttl))
    if (deadline := values.get(DEADLINE)) is not None:
        ends.append(now + _deadline_ms(deadline) - clock.wall_ms())
    return min(ends, default=None)


def _ttl_ms(text: str) -> int:
    ttl = float(text) if _NUMBER.fullmatch(text.strip()) else -1.0
    if not 0 <= ttl <= limits.WAIT_MS_MAX * 24:
        raise InvalidArgument(f"Rpc-Ttl-Ms is {text[:40]!r}, must be milliseconds of at most a day")
    return ceil(ttl)


def _deadline_ms(text: str) -> int:
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        at = None
    if at is None or at.tzinfo is None:
        raise InvalidArgument(f"Rpc-Deadline is {text[:40]!r}, must be RFC 3339 with a zone")
    return round(at.timestamp() * 1000)


def _named(values: Mapping[str, str], name: str) -> str | None:
    value = values.get(name)
    if value is None or not value.strip():
        return None  # a blank name is none (the original kept it as an empty text)
    if len(value) > limits.NAME_CHARS_MAX:
        raise InvalidArgument(
            f"{name} has {len(value)} characters, at most {limits.NAME_CHARS_MAX}"
        )
    return value


def reply_headers(meta: RequestMeta) -> dict[str, str]:
    headers = {
        "Rpc-Transport": meta.transport,
        "Rpc-Protocol": PROTOCOL,
        "Rpc-Encoding": meta.encoding,
    }
    if meta.shard_key is not None:
        headers["Rpc-Shard-Key"] = quote(meta.shard_key, safe="!#$&'()*+,/:;=?@[]~ ")
    return headers


HOP = frozenset(["rpc-transport", "rpc-protocol", ENCODING, SHARD_KEY])
"""What a reply says about the way it came; a node that passes it on says its own."""


def own_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Those of a reply that are its procedure's, names in lower case."""
    lowered = {name.lower(): value for name, value in headers.items()}
    return {name: value for name, value in lowered.items() if name not in HOP}


@lru_cache(maxsize=64)
def hop_headers(transport: str, encoding: str) -> Mapping[str, str]:
    """Of every reply that has no others: made once, since most have none."""
    meta = RequestMeta(procedure="", transport=transport, encoding=encoding)
    return MappingProxyType({k.lower(): v for k, v in reply_headers(meta).items()})


def heard_headers(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Of a reply as it came over a wire that carries `reply_headers`."""
    heard = {name.lower(): value for name, value in pairs}
    if SHARD_KEY in heard:
        heard[SHARD_KEY] = unquote(heard[SHARD_KEY])
    return heard


def error_headers(error: OmniRelayError) -> dict[str, str]:
    """Percent-encoded, since a message may hold what no header may."""
    headers = {
        "Rpc-Status": error.status,
        "Rpc-Error-Code": quote(error.code),
        "Rpc-Error-Message": _cut(quote(error.message[:_MESSAGE_CHARS])),
    }
    seconds = retry_after_s(error)
    if seconds is not None:
        headers["Retry-After"] = str(seconds)
    return headers


def _cut(encoded: str) -> str:
    """Not in the middle of a character."""
    if len(encoded) <= 3 * _MESSAGE_CHARS:
        return encoded
    whole = encoded[: 3 * _MESSAGE_CHARS].rpartition("%")[0]
    return quote(unquote(whole, errors="ignore"))


TRACE = ("traceparent", "tracestate")
FORWARDED = "rpc-forwarded"
"""Another node has taken the call and passes it on; who gets it does not pass it on again."""
FORWARDED_PRINCIPAL = "rpc-forwarded-principal"
"""Whom that node has proved; nobody but a peer is believed to say so."""
FORWARDED_PROOF = "rpc-forwarded-proof"


def call_headers(meta: RequestMeta) -> dict[str, str]:
    """What an outbound sends along: the names its caller gave, and the trace it belongs to."""
    if (
        not meta.headers
        and meta.caller is None
        and meta.shard_key is None
        and meta.routing_key is None
        and meta.routing_delegate is None
        and meta.peer_id is None
    ):
        return {}  # as nearly all of an SDK's calls
    given = (
        (CALLER, meta.caller),
        (SHARD_KEY, meta.shard_key),
        (ROUTING_KEY, meta.routing_key),
        (ROUTING_DELEGATE, meta.routing_delegate),
        (PEER_ID, meta.peer_id),
    )
    headers = {name: value for name, value in given if value is not None}
    if not meta.headers:
        return headers
    if FORWARDED in meta.headers:
        return headers | dict(meta.headers)  # a node put them together for the owner
    headers |= {name: meta.headers[name] for name in TRACE if name in meta.headers}
    return headers
