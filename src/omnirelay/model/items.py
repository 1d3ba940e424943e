"""What travels: a payload, its token, its last error, a drained item. Wire names are camelCase."""

import re
from collections.abc import Iterable
from datetime import UTC, datetime
from functools import lru_cache

import msgspec

from omnirelay.model import limits
from omnirelay.model.errors import InvalidArgument, InvalidPayload
from omnirelay.model.limits import BODY_BYTES_MAX, NAME_CHARS_MAX

ANONYMOUS = "anonymous"
# Python's own `int` would also take signs, blanks, underscores, 0x and the digits of any script.
_TOKEN = re.compile(r"[0-9]{1,18}:[0-9]{1,18}:[0-9a-fA-F]{32}")


class Wire(
    msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, gc=False, kw_only=False
):
    """Base of every struct that crosses a boundary.

    `gc=False`: these hold only strings, numbers, bytes and each other, so they cannot form cycles,
    and a million of them cost the collector nothing.
    """


class Payload(Wire, frozen=True, gc=False):
    """What a producer asks to be done, and on which resource. The body is opaque to us."""

    resource_type: str
    resource_id: str
    partition_key: str | None = None
    payload_encoding: str = "application/octet-stream"
    body: bytes = b""
    attributes: dict[str, str] | None = None
    request_id: str | None = None


class ErrorInfo(Wire, frozen=True, gc=False):
    message: str
    code: str | None = None


class Token(Wire, frozen=True, gc=False):
    """Proof of one grant. `lease_id` is a dashed UUID; `fence` may be left out by old clients."""

    sequence_id: int
    attempt: int
    lease_id: str
    fence: int | None = None

    def __str__(self) -> str:
        return f"{self.sequence_id}:{self.attempt}:{self.lease_id.replace('-', '')}"

    @classmethod
    def parse(cls, text: str) -> "Token":
        if not _TOKEN.fullmatch(text):
            raise InvalidArgument(f"not a token: {text[:80]!r}; expected seq:attempt:leaseIdHex")
        sequence_id, attempt, lease_id = text.split(":")
        return cls(int(sequence_id), int(attempt), dashed(lease_id.lower()))


class PendingItem(Wire, frozen=True, gc=False):
    """One drained item, complete enough to go on elsewhere. `origin` names the journal it was
    born in, so that (origin, sequenceId) is one item for ever."""

    payload: Payload
    attempt: int
    enqueued_at: datetime
    sequence_id: int
    last_error: ErrorInfo | None = None
    last_ownership_token: Token | None = None
    dead_letter: bool = False
    available_at: datetime | None = None
    priority: int = 0
    max_attempts: int | None = None
    lease_duration_ms: int | None = None
    origin: str | None = None


def dashed(hex32: str) -> str:
    return f"{hex32[:8]}-{hex32[8:12]}-{hex32[12:16]}-{hex32[16:20]}-{hex32[20:]}"


@lru_cache(maxsize=4096)
def to_time(ms: int) -> datetime:
    """Remembered: the items of one commit share their times, and every lease shows two."""
    return datetime.fromtimestamp(ms / 1000, UTC)


def to_ms(time: datetime) -> int:
    if time.tzinfo is None:
        raise InvalidArgument(f"time {time.isoformat()} has no zone; use UTC with Z")
    return round(time.timestamp() * 1000)


def names_chars(payloads: Iterable[Payload]) -> list[int]:
    """How many characters the names of each have. Of many at once: it is asked of every batch."""
    return [
        len(one.resource_type)
        + len(one.resource_id)
        + len(one.payload_encoding)
        + len(one.partition_key or "")
        + len(one.request_id or "")
        for one in payloads
    ]


def wire_size(payload: Payload, error: ErrorInfo | None = None) -> int:
    """About how many bytes it takes in a message, with its last error, rather too many: text of any
    script, and a body in base64."""
    (chars,) = names_chars((payload,))
    if payload.attributes:
        chars += sum(len(name) + len(value) for name, value in payload.attributes.items())
    if error is not None:
        chars += len(error.message) + len(error.code or "")
    return len(payload.body) * 4 // 3 + chars * 4 + 256


def check_payload(payload: Payload) -> None:
    """Refuse what can never be worked on. Runs on every enqueue: the good path is one test."""
    kind, name = payload.resource_type, payload.resource_id
    if (
        not 0 < len(kind) <= NAME_CHARS_MAX
        or not 0 < len(name) <= NAME_CHARS_MAX
        or kind.isspace()
        or name.isspace()
        or len(payload.body) > BODY_BYTES_MAX
        or len(payload.payload_encoding) > NAME_CHARS_MAX
        or (payload.request_id is not None and len(payload.request_id) > NAME_CHARS_MAX)
        or (payload.partition_key is not None and len(payload.partition_key) > NAME_CHARS_MAX)
        or payload.attributes
    ):
        _check_closely(payload)


def are_good(payloads: Iterable[Payload]) -> bool:
    """Whether `check_payload` takes every one of them, as it does of nearly all; False: it has to
    be asked. A text that begins with a visible ASCII character is neither empty nor blank."""
    return not [
        0
        for one in payloads
        if not "!" <= one.resource_type < "\x7f"
        or not "!" <= one.resource_id < "\x7f"
        or len(one.resource_type) > NAME_CHARS_MAX
        or len(one.resource_id) > NAME_CHARS_MAX
        or len(one.body) > BODY_BYTES_MAX
        or len(one.payload_encoding) > NAME_CHARS_MAX
        or (one.request_id is not None and len(one.request_id) > NAME_CHARS_MAX)
        or (one.partition_key is not None and len(one.partition_key) > NAME_CHARS_MAX)
        or one.attributes
    ]


def _check_closely(payload: Payload) -> None:
    for name in ("resource_type", "resource_id"):
        text = getattr(payload, name)
        if not text or text.isspace():
            raise InvalidPayload(f"{name}_required", f"payload.{name} must not be blank")
    if len(payload.body) > BODY_BYTES_MAX:
        raise InvalidPayload(
            "body_too_large",
            f"payload.body has {len(payload.body)} bytes, the limit is {BODY_BYTES_MAX}",
        )
    for name in _NAMES:
        text = getattr(payload, name)
        if text is not None and len(text) > NAME_CHARS_MAX:
            raise InvalidPayload(
                "name_too_long",
                f"payload.{name} has {len(text)} characters, the limit is {NAME_CHARS_MAX}",
            )
    if payload.attributes:
        _check_attributes(payload.attributes)


_NAMES = ("resource_type", "resource_id", "partition_key", "request_id", "payload_encoding")


def _check_attributes(attributes: dict[str, str]) -> None:
    if len(attributes) > limits.ATTRIBUTES_MAX:
        raise InvalidPayload("too_many_attributes", f"at most {limits.ATTRIBUTES_MAX} attributes")
    for name, value in attributes.items():
        if len(name) > NAME_CHARS_MAX or len(value) > limits.ATTRIBUTE_CHARS_MAX:
            raise InvalidPayload("attribute_too_long", f"attribute {name[:40]!r} is too long")
