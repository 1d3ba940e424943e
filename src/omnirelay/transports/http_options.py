"""Bounds, deadlines and refusals that only HTTP has."""

import msgspec

from omnirelay.model import limits
from omnirelay.model.errors import (
    DeadlineExceeded,
    InvalidArgument,
    OmniRelayError,
    TooLarge,
    Unimplemented,
)
from omnirelay.rpc import status


class HttpOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What one connection may cost. Deadlines are looked at about once a second, or at a quarter of
    the shortest one if that is sooner."""

    head_s: float = 10.0
    """From a request's first byte to the end of its headers; also for the TLS handshake."""
    body_s: float = 30.0
    """From there to the end of its body. A stream of messages may be as long as it likes, with no
    silence longer than this; an empty line breaks the silence."""
    idle_s: float = 75.0
    """Between two requests of one connection."""
    write_s: float = 30.0
    """How long a caller may take nothing of what is written to it."""
    comment_s: float = 15.0
    """Silence after which an event stream says that it is still there."""
    linger_s: float = 1.0
    """How long a refused caller may go on sending before it is cut off: a socket closed with
    unread bytes takes back the answer too."""

    body_bytes_max: int = limits.MESSAGE_BYTES_MAX
    bodies_bytes_max: int = 256 << 20
    """Bodies of all connections that are still being read or answered."""
    connections_max: int = limits.CONNECTIONS_MAX
    calls_max: int = limits.CONNECTIONS_MAX
    held_bytes_max: int = 64 << 10
    """Bytes read ahead, while a call runs or the reader of a stream is slow."""

    @property
    def sweep_s(self) -> float:
        shortest = min(self.head_s, self.body_s, self.idle_s, self.write_s, self.comment_s)
        return min(1.0, shortest / 4)


class HeadersTooLarge(TooLarge):
    code = "error.headers_too_large"


class WrongMethod(Unimplemented):
    code = "error.method_not_allowed"

    def __init__(self, method: str, allowed: str) -> None:
        super().__init__(f"{method} is not possible here, only {allowed}")
        self.allowed = allowed


class UnknownPath(Unimplemented):
    code = "error.path_not_found"


class CompressedBody(InvalidArgument):
    code = "error.content_encoding"


class TooSlow(DeadlineExceeded):
    code = "error.request_too_slow"


_MORE_EXACT: dict[type[OmniRelayError], int] = {
    HeadersTooLarge: 431,
    WrongMethod: 405,
    CompressedBody: 415,
    TooSlow: 408,
}


def http_status(error: OmniRelayError) -> int:
    """As the table of all transports has it, save for what HTTP has a status of its own for."""
    return _MORE_EXACT.get(type(error)) or status.http_status(error)
