"""What a node serves over HTTP beside its calls: control plane, dashboard, metrics, descriptions.

A page is a function; this room knows neither its content nor who may see it.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping

import msgspec

from omnirelay.model.errors import InvalidOption
from omnirelay.rpc.headers import Headers
from omnirelay.rpc.meta import Certificate


class PageRequest(msgspec.Struct, frozen=True, kw_only=True):
    method: str
    path: str
    query: Mapping[str, str]
    """The last value of a name that came twice."""
    headers: Headers
    body: bytes = b""
    address: str = ""
    certificate: Certificate | None = None


class PageReply(msgspec.Struct, frozen=True, kw_only=True):
    status: int = 200
    headers: Mapping[str, str] = {}
    body: bytes = b""
    stream: AsyncGenerator[bytes] | None = None
    """Chunks of an event stream instead of a body, each of them whole events."""


Page = Callable[[PageRequest], Awaitable[PageReply]]
"""May raise OmniRelayError, which is answered as it is for a call."""


class Pages:
    """Exact paths first, then the longest prefix written as `/prefix/*`."""

    def __init__(self, pages: Mapping[str, Page]) -> None:
        """Raises InvalidOption for a path that no request can have."""
        self._exact: dict[str, Page] = {}
        self._below: list[tuple[str, Page]] = []
        for path, page in pages.items():
            if not path.startswith("/") or path.startswith("/v1/"):
                raise InvalidOption(f"a page is at /path and not below /v1/, which {path!r} is not")
            if path.endswith("/*"):
                self._below.append((path[:-1], page))
            else:
                self._exact[path] = page
        self._below.sort(key=lambda pair: len(pair[0]), reverse=True)

    def find(self, path: str) -> Page | None:
        page = self._exact.get(path)
        if page is not None:
            return page
        return next((below for prefix, below in self._below if path.startswith(prefix)), None)
