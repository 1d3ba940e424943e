"""What a hello and a call say about the call, as every transport's `RequestMeta`."""

import re

import msgspec

from omnirelay.model import limits
from omnirelay.model.errors import InvalidArgument
from omnirelay.model.ports import Clock
from omnirelay.rpc.codec import MSGPACK
from omnirelay.rpc.headers import DEADLINE, ENCODING, TTL_MS, Headers, meta_of
from omnirelay.rpc.meta import Certificate, RequestMeta
from omnirelay.transports.stream_frames import VERSION, CallFrame, Hello

TTL_MS_HIGHEST = 24 * limits.WAIT_MS_MAX
"""A day, as for the header."""
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")


def read_headers(given: dict[str, str]) -> Headers:
    """Raises TooLarge or InvalidArgument for what no other wire could carry either."""
    for name, value in given.items():
        if _CONTROL.search(name) or _CONTROL.search(value):
            raise InvalidArgument(f"the header {name[:40]!r} holds a control character")
    return Headers(given.items())


class Greeting:
    """What the hello said holds for every call of its connection."""

    def __init__(
        self, hello: Hello, *, clock: Clock, address: str, certificate: Certificate | None
    ) -> None:
        if hello.version != VERSION:
            raise InvalidArgument(f"version {hello.version} is not spoken here, {VERSION} is")
        headers = read_headers(hello.headers)
        for name in (TTL_MS, DEADLINE):
            if name in headers.values:
                raise InvalidArgument(f"{name} belongs to a call, not to the hello")
        headers.values.setdefault(ENCODING, MSGPACK.name)
        self._clock = clock
        self._address = address
        self._certificate = certificate
        self._headers = headers
        self._base = self._read("", headers)
        self._metas: dict[str, RequestMeta] = {}

    def meta(self, frame: CallFrame, *, is_known: bool) -> RequestMeta:
        """Most calls bring no headers of their own and look like the last one of their kind, if
        that is one the node serves: other names are not worth remembering."""
        if frame.headers:
            meta = self._read(frame.procedure, self._merged(frame.headers))
        else:
            found = self._metas.get(frame.procedure)
            if found is None:
                found = msgspec.structs.replace(self._base, procedure=frame.procedure)
                if is_known:
                    self._metas[frame.procedure] = found
            meta = found
        if frame.ttl_ms is None:
            return meta
        if not 0 <= frame.ttl_ms <= TTL_MS_HIGHEST:
            raise InvalidArgument(f"the call has {frame.ttl_ms} ms; at most a day is possible")
        expires_ms = self._clock.monotonic_ms() + frame.ttl_ms
        if meta.expires_ms is not None:
            expires_ms = min(expires_ms, meta.expires_ms)
        return msgspec.structs.replace(meta, expires_ms=expires_ms)

    def _read(self, procedure: str, headers: Headers) -> RequestMeta:
        return meta_of(
            procedure,
            headers,
            transport="stream",
            clock=self._clock,
            address=self._address,
            certificate=self._certificate,
        )

    def _merged(self, own: dict[str, str]) -> Headers:
        """A call's own headers over those of the hello; what came twice in either stays marked."""
        called = read_headers(own)
        merged = Headers({**self._headers.values, **called.values}.items())
        merged.doubled |= self._headers.doubled | called.doubled
        return merged
