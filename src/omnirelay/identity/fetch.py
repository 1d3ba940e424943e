"""One bounded GET, for the keys of an issuer: the adapter behind the port `Fetch`."""

import asyncio
import http.client
import socket
import ssl
from collections.abc import Awaitable, Callable
from contextlib import suppress
from ipaddress import ip_address
from urllib.parse import SplitResult, urlsplit

from omnirelay.model import limits
from omnirelay.model.errors import InvalidOption, Unavailable

Fetch = Callable[[str], Awaitable[bytes]]
"""From an address to a body. Raises KeysUnusable."""


class KeysUnusable(Unavailable):
    """Says why, for the log of the node. Callers only hear that keys are missing."""


def checked_url(url: str) -> SplitResult:
    """Raises InvalidOption unless nobody on the way can put his own keys into the answer."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        raise InvalidOption(f"jwks_url: {url!r} is not an address") from None
    if not host or parts.username is not None or parts.fragment:
        raise InvalidOption(
            f"jwks_url: must be an address with a host, without a user or a fragment, not a "
            f"{parts.scheme!r} one on {host!r}"
        )
    if parts.scheme != "https" and not (parts.scheme == "http" and _is_loopback(host)):
        raise InvalidOption(f"jwks_url: {url!r} must be https (http is only believed on loopback)")
    return parts


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class HttpFetch:
    """Follows no redirect, unpacks nothing, heeds no proxy of the environment, and reads no more
    bytes and for no longer than it was told. Works in a thread; giving up closes its socket."""

    def __init__(self, *, ca_file: str | None = None, timeout_s: float = 5.0) -> None:
        self._timeout_s = timeout_s
        self._ca_file = ca_file
        # Reading the system's authorities takes a while: not before somebody needs them.
        self._tls = None if ca_file is None else self._context()

    async def __call__(self, url: str) -> bytes:
        parts = checked_url(url)
        if parts.scheme == "https" and self._tls is None:
            self._tls = await asyncio.to_thread(self._context)
        connection = self._connection(parts)
        target = parts.path or "/"
        if parts.query:
            target += f"?{parts.query}"
        try:
            async with asyncio.timeout(self._timeout_s):
                return await asyncio.to_thread(_read, connection, target)
        except TimeoutError:
            raise KeysUnusable(f"no answer within {self._timeout_s:g} s") from None
        finally:
            _cut(connection)

    def _context(self) -> ssl.SSLContext:
        try:
            return ssl.create_default_context(cafile=self._ca_file)
        except (OSError, ssl.SSLError) as error:
            raise InvalidOption(f"jwks_ca_file: {self._ca_file}: {error}") from None

    def _connection(self, parts: SplitResult) -> http.client.HTTPConnection:
        host = parts.hostname or ""
        if parts.scheme == "https":
            return http.client.HTTPSConnection(
                host, parts.port, timeout=self._timeout_s, context=self._tls
            )
        return http.client.HTTPConnection(host, parts.port, timeout=self._timeout_s)


def _read(connection: http.client.HTTPConnection, target: str) -> bytes:
    try:
        connection.request("GET", target, headers={"Accept": "application/json"})
        response = connection.getresponse()
        kind = response.headers.get_content_type()
        if response.status != 200:
            raise KeysUnusable(
                f"the server answered {response.status}; only 200 is taken, and no redirect"
            )
        if "html" in kind:
            raise KeysUnusable(f"the server answered a page ({kind}), not a key set")
        if response.headers.get("Content-Encoding", "identity") != "identity":
            raise KeysUnusable("the server answered in a compressed form nobody asked for")
        body = response.read(limits.KEY_SET_BYTES_MAX + 1)
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise KeysUnusable(f"it cannot be reached: {error!r}"[:300]) from None
    finally:
        connection.close()
    if len(body) > limits.KEY_SET_BYTES_MAX:
        raise KeysUnusable(f"the answer is longer than {limits.KEY_SET_BYTES_MAX} bytes")
    return body


def _cut(connection: http.client.HTTPConnection) -> None:
    """Wake the thread if it still waits. It closes the socket itself: a descriptor closed here
    might be somebody else's by the time the thread looks at it."""
    waiting = connection.sock
    if waiting is not None:
        with suppress(OSError):
            waiting.shutdown(socket.SHUT_RDWR)
