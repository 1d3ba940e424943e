"""One table from an error to the status of every wire, and back to the same error."""

from typing import Any, Final

import msgspec

from omnirelay.model import errors
from omnirelay.model.errors import OmniRelayError

HTTP: Final = {
    "INVALID_ARGUMENT": 400,
    "UNAUTHENTICATED": 401,
    "PERMISSION_DENIED": 403,
    "NOT_FOUND": 404,
    "ALREADY_EXISTS": 409,
    "FAILED_PRECONDITION": 412,
    "RESOURCE_EXHAUSTED": 429,
    "CANCELLED": 499,
    "INTERNAL": 500,
    "DATA_LOSS": 500,
    "UNIMPLEMENTED": 404,
    "UNAVAILABLE": 503,
    "DEADLINE_EXCEEDED": 504,
}

GRPC: Final = {
    "CANCELLED": 1,
    "INVALID_ARGUMENT": 3,
    "DEADLINE_EXCEEDED": 4,
    "NOT_FOUND": 5,
    "ALREADY_EXISTS": 6,
    "PERMISSION_DENIED": 7,
    "RESOURCE_EXHAUSTED": 8,
    "FAILED_PRECONDITION": 9,
    "UNIMPLEMENTED": 12,
    "INTERNAL": 13,
    "UNAVAILABLE": 14,
    "DATA_LOSS": 15,
    "UNAUTHENTICATED": 16,
}

RETRY_AFTER_S: Final = {"RESOURCE_EXHAUSTED": 1, "UNAVAILABLE": 1}


class ErrorBody(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a refused caller gets, on every wire."""

    message: str
    status: str
    code: str
    details: dict[str, Any] | None = None
    """Any: numbers and texts, as the error carries them."""


def body_of(error: OmniRelayError) -> ErrorBody:
    return ErrorBody(error.message, error.status, error.code, error.details or None)


def http_status(error: OmniRelayError) -> int:
    """A body that is too large is the one error whose HTTP status says more than its class."""
    if isinstance(error, errors.TooLarge):
        return 413
    return HTTP.get(error.status, 500)


def grpc_status(error: OmniRelayError) -> int:
    return GRPC.get(error.status, 13)


def retry_after_s(error: OmniRelayError) -> int | None:
    return None if isinstance(error, errors.TooLarge) else RETRY_AFTER_S.get(error.status)


def error_of(body: ErrorBody) -> OmniRelayError:
    """The error another process reported, as the class it was raised as there, or as the nearest
    one known here: a caller catches the same thing over every wire."""
    kind = _BY_CODE.get(body.code) or _nearest(body)
    error = kind.__new__(kind)
    OmniRelayError.__init__(error, body.message)
    error.details = dict(body.details or {})  # under whatever names the other side chose
    error.status = body.status  # type: ignore[misc]
    error.code = body.code
    if isinstance(error, errors.StaleToken):
        fence = error.details.get("currentFence")
        error.current_fence = fence if isinstance(fence, int) else None
    if isinstance(error, errors.Corrupt):
        sequence = error.details.get("sequence")
        error.shard = str(error.details.get("shard", ""))
        error.sequence = sequence if isinstance(sequence, int) else 0
    if isinstance(error, errors.JournalOwned):
        pid = error.details.get("pid")
        error.pid = pid if isinstance(pid, int) else None
    return error


def _nearest(body: ErrorBody) -> type[OmniRelayError]:
    for prefix, kind in _BY_PREFIX.items():
        if body.code.startswith(prefix):
            return kind
    return _BY_STATUS.get(body.status, OmniRelayError)


def _all(kind: type[OmniRelayError]) -> list[type[OmniRelayError]]:
    return [kind, *(found for child in kind.__subclasses__() for found in _all(child))]


_BY_CODE = {kind.code: kind for kind in reversed(_all(OmniRelayError)) if "code" in vars(kind)}
_BY_PREFIX = {
    "resourcelease.payload.": errors.InvalidPayload,
    "resourcelease.restore.": errors.InvalidRestore,
}
_BY_STATUS: dict[str, type[OmniRelayError]] = {
    kind.status: kind
    for kind in (
        errors.InvalidArgument,
        errors.Unauthenticated,
        errors.PermissionDenied,
        errors.UnknownToken,
        errors.SequenceConflict,
        errors.StaleToken,
        errors.ResourceExhausted,
        errors.Cancelled,
        errors.Unimplemented,
        errors.Unavailable,
        errors.DeadlineExceeded,
    )
}
