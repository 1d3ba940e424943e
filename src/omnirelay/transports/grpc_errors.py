"""Errors as gRPC carries them: a status, a message, and the whole refusal in the trailers."""

from collections.abc import Iterable
from typing import Final
from urllib.parse import quote

import grpc
import msgspec

from omnirelay.model.errors import (
    DeadlineExceeded,
    InvalidArgument,
    OmniRelayError,
    OutcomeUnknown,
    Overloaded,
    PermissionDenied,
    ResourceExhausted,
    TooLarge,
    Unauthenticated,
    Unavailable,
    Unimplemented,
)
from omnirelay.rpc.headers import error_headers
from omnirelay.rpc.status import ErrorBody, body_of, error_of, grpc_status

Metadata = tuple[tuple[str, str | bytes], ...]

ERROR_KEY: Final = "rpc-error-bin"
# Other people's clients refuse trailers of more than 8 KiB in all, and what they would see then is
# a broken call instead of the refusal.
_TEXT_BYTES: Final = 1024
_BODY_BYTES: Final = 3072

CODES: Final = {code.value[0]: code for code in grpc.StatusCode}


def trailers_of(error: OmniRelayError) -> Metadata:
    pairs = [(name.lower(), _cut(value)) for name, value in error_headers(error).items()]
    return (*pairs, (ERROR_KEY, _body(error)))


def details_of(error: OmniRelayError) -> str:
    """The message itself; gRPC percent-encodes it on the way."""
    kept = error.message[:_TEXT_BYTES]
    while len(quote(kept)) > _TEXT_BYTES:
        kept = kept[: len(kept) // 2]
    return kept


def code_of(error: OmniRelayError) -> grpc.StatusCode:
    return CODES[grpc_status(error)]


def _cut(quoted: str) -> str:
    """Not in the middle of a percent-encoded character."""
    if len(quoted) <= _TEXT_BYTES:
        return quoted
    return quoted[:_TEXT_BYTES].rsplit("%", 1)[0] if "%" in quoted else quoted[:_TEXT_BYTES]


def _body(error: OmniRelayError) -> bytes:
    body = body_of(error)
    encoded = _encoder.encode(body)
    if len(encoded) <= _BODY_BYTES:
        return encoded
    short = details_of(error)
    encoded = _encoder.encode(ErrorBody(short, body.status, body.code, body.details))
    if len(encoded) <= _BODY_BYTES:
        return encoded
    return _encoder.encode(ErrorBody(short, body.status, body.code))


def refusal_of(
    code: grpc.StatusCode, details: str | None, trailers: Iterable[tuple[str, str | bytes]]
) -> OmniRelayError:
    """What the other side raised, or what gRPC itself reports about the call."""
    for name, value in trailers:
        if name == ERROR_KEY and isinstance(value, bytes):
            try:
                return error_of(_decoder.decode(value))
            except msgspec.MsgspecError:
                break  # not one of ours, whatever it calls itself
    return _of_grpc(code, (details or code.name)[:_TEXT_BYTES])


def _of_grpc(code: grpc.StatusCode, details: str) -> OmniRelayError:
    if code is grpc.StatusCode.UNAVAILABLE:
        sent_nothing = details.startswith(NEVER_LEFT)
        return Unavailable(details) if sent_nothing else OutcomeUnknown(details)
    if code is grpc.StatusCode.RESOURCE_EXHAUSTED and "larger than max" in details:
        return TooLarge(details)
    if code is grpc.StatusCode.RESOURCE_EXHAUSTED and details.startswith("Concurrent RPC limit"):
        return Overloaded(details)
    # Anything else that a server of ours would have explained came from the wire or from a proxy,
    # after the call had left: it may have happened.
    return _PLAIN.get(code, OutcomeUnknown)(details)


# How gRPC words a connection that never was: no address, nobody listening, no common TLS.
NEVER_LEFT = (
    "failed to connect",
    "DNS resolution failed",
    "Name resolution failed",
    "empty address",
)
_PLAIN: dict[grpc.StatusCode, type[OmniRelayError]] = {
    grpc.StatusCode.INVALID_ARGUMENT: InvalidArgument,
    grpc.StatusCode.OUT_OF_RANGE: InvalidArgument,
    grpc.StatusCode.DEADLINE_EXCEEDED: DeadlineExceeded,
    grpc.StatusCode.PERMISSION_DENIED: PermissionDenied,
    grpc.StatusCode.UNAUTHENTICATED: Unauthenticated,
    grpc.StatusCode.RESOURCE_EXHAUSTED: ResourceExhausted,
    grpc.StatusCode.UNIMPLEMENTED: Unimplemented,
}

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(ErrorBody)
