"""What a caller passes in, checked on the caller's own thread: inside, types are trusted.

The usual case costs a few type tests. Anything else goes through a codec and back, so that what the
journal could not store is refused here, and a dict the caller changes later is not ours any more.
"""

from collections.abc import Sequence
from functools import cache
from typing import TypeGuard, TypeVar

import msgspec

from omnirelay.lease.commands import Enqueue
from omnirelay.model import limits
from omnirelay.model.errors import InvalidArgument, InvalidPayload, OmniRelayError
from omnirelay.model.items import Payload

S = TypeVar("S", bound=msgspec.Struct)

_encoder = msgspec.msgpack.Encoder()


@cache
def _decoder(kind: type[S]) -> "msgspec.msgpack.Decoder[S]":
    return msgspec.msgpack.Decoder(kind)


def proved(given: S) -> S:
    """The same, with every field of its declared type and all text storable as UTF-8."""
    try:
        stored: S = _decoder(type(given)).decode(_encoder.encode(given))
        return stored
    except (msgspec.MsgspecError, TypeError, ValueError, OverflowError) as error:
        raise InvalidArgument(f"{type(given).__name__.lower()}: {error}") from None


def milliseconds(name: str, seconds: float) -> int:
    # Neither an infinite nor an undefined number is below anything.
    if not isinstance(seconds, int | float) or not abs(seconds) < limits.WIRE_NUMBER_MAX / 1000:
        raise InvalidArgument(f"{name} is {seconds!r:.80}, must be a finite number of seconds")
    return round(seconds * 1000)


def optional_milliseconds(name: str, seconds: float | None) -> int | None:
    return None if seconds is None else milliseconds(name, seconds)


def named(what: str, name: str) -> str:
    if not isinstance(name, str) or not name.strip() or len(name) > limits.NAME_CHARS_MAX:
        raise InvalidArgument(
            f"{what} is {name!r:.80}, must be text of 1 to {limits.NAME_CHARS_MAX} characters"
        )
    _check_text(what, name)
    return name


def type_names(types: Sequence[str] | None) -> tuple[str, ...] | None:
    if types is None:
        return None
    # One text is a sequence of its letters: it would wait for types nobody has, for ever.
    if isinstance(types, str) or not all(isinstance(name, str) for name in types):
        raise InvalidArgument(f"types is {types!r:.80}, must be a list of names")
    return tuple(dict.fromkeys(types))


def storable(text: str | None) -> str | None:
    """An error's own words are kept as far as they can be, rather than refused."""
    return text.encode(errors="replace").decode() if isinstance(text, str) else text


def _check_text(what: str, text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidArgument(f"{what} cannot be stored as UTF-8: {error.reason}") from None


# -- items --------------------------------------------------------------------------------------


def new_item(
    payload: Payload,
    *,
    delay: float = 0.0,
    priority: int = 0,
    max_attempts: int | None = None,
    lease_duration: float | None = None,
    peer_id: str | None = None,
) -> Enqueue:
    """An enqueue command from what a Python caller may pass; what cannot be one is refused."""
    return checked_item(
        Enqueue(
            payload=payload,
            delay_ms=milliseconds("delay", delay) if delay else 0,
            priority=priority,
            max_attempts=max_attempts,
            lease_duration_ms=optional_milliseconds("lease_duration", lease_duration),
            peer_id=peer_id,
        )
    )


def checked_item(command: Enqueue) -> Enqueue:
    if _is_plain(command):
        return command
    _check_payload(command.payload)
    return proved(command)


def _is_plain(command: Enqueue) -> bool:
    return (
        _is_plain_payload(command.payload)
        and _is_small(command.priority)
        and (command.max_attempts is None or _is_small(command.max_attempts))
    )


def _is_plain_payload(payload: object) -> TypeGuard[Payload]:
    if type(payload) is not Payload:
        return False
    kind, name, encoding = payload.resource_type, payload.resource_id, payload.payload_encoding
    return (
        type(kind) is type(name) is type(encoding) is str
        and kind.isascii()
        and name.isascii()
        and encoding.isascii()
        and type(payload.body) is bytes
        and payload.attributes is None
        and (payload.request_id is None or _is_ascii(payload.request_id))
        and (payload.partition_key is None or _is_ascii(payload.partition_key))
    )


def _is_small(number: object) -> bool:
    """It fits into every message; whether it makes sense is for the queue to say."""
    return type(number) is int and -limits.WIRE_NUMBER_MAX <= number <= limits.WIRE_NUMBER_MAX


def _is_ascii(text: object) -> bool:
    return type(text) is str and text.isascii()


def _check_payload(payload: Payload) -> None:
    """The mistakes with a code of their own; `proved` finds the rest."""
    if not isinstance(payload, Payload):
        raise InvalidPayload("required", f"a payload is needed, not {type(payload).__name__}")
    for name in ("resource_type", "resource_id"):
        if not isinstance(getattr(payload, name), str):
            raise InvalidPayload(f"{name}_required", f"payload.{name} must be text")
    if not isinstance(payload.body, bytes):
        raise InvalidPayload(
            "body_type", f"payload.body must be bytes, not {type(payload.body).__name__}"
        )


def checked_items(
    given: Sequence[Payload | Enqueue], peer_id: str | None
) -> list[Enqueue | OmniRelayError]:
    """Each by itself, so that a wrong one stops no other."""
    return [_checked_or_refused(item, peer_id) for item in given]


def _checked_or_refused(item: Payload | Enqueue, peer_id: str | None) -> Enqueue | OmniRelayError:
    if _is_plain_payload(item):
        return Enqueue(payload=item, peer_id=peer_id)
    try:
        if isinstance(item, Enqueue):
            return checked_item(item)
        return new_item(item, peer_id=peer_id)
    except OmniRelayError as refused:
        return refused


def batches(commands: Sequence[Enqueue]) -> list[list[Enqueue]]:
    """In order, none with more items or bytes than one envelope should carry."""
    total = sum([len(command.payload.body) for command in commands])
    if 0 < len(commands) <= limits.BATCH_MAX and total <= limits.ENVELOPE_BYTES_MAX:
        return [list(commands)]
    found: list[list[Enqueue]] = [[]]
    size = 0
    for command in commands:
        size += len(command.payload.body)
        if len(found[-1]) >= limits.BATCH_MAX or size > limits.ENVELOPE_BYTES_MAX:
            found.append([])
            size = len(command.payload.body)
        found[-1].append(command)
    return [batch for batch in found if batch]
