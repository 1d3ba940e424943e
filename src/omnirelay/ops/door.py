"""Who may look through a window, and who may turn a switch."""

from collections.abc import Awaitable, Callable, Mapping
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

import msgspec

from omnirelay.identity.policy import CHANGE, CONTROL, READ
from omnirelay.identity.settings import Identity
from omnirelay.model.errors import InvalidArgument, PermissionDenied
from omnirelay.model.ports import Clock
from omnirelay.rpc.headers import meta_of
from omnirelay.transports.http_options import WrongMethod
from omnirelay.transports.http_pages import Page, PageReply, PageRequest

_OWN_PAGES = ("same-origin", "none")
_HEADERS = {
    "cache-control": "no-store",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
}

Shown = Callable[[PageRequest], Awaitable[object]]
"""Whatever it returns is answered as JSON, unless it is a PageReply already."""


class Door:
    """A node without identity lets everybody in: it listens on loopback then. What a browser may be
    tricked into is refused all the same."""

    def __init__(self, identity: Identity, clock: Clock) -> None:
        self._identity = identity
        self._clock = clock

    def open_to_all(self, show: Shown) -> Page:
        """For whoever only asks whether the process lives."""

        async def page(request: PageRequest) -> PageReply:
            _check_method(request, "GET")
            return _reply_of(await show(request))

        return page

    def reads(self, show: Shown) -> Page:
        async def page(request: PageRequest) -> PageReply:
            _check_method(request, "GET")
            await self._let_in(request, READ)
            return _reply_of(await show(request))

        return page

    def changes(
        self, change: Shown, *, show: Shown | None = None, permission: str = CHANGE
    ) -> Page:
        """POST changes; GET shows, if there is something to show."""

        async def page(request: PageRequest) -> PageReply:
            if show is not None and request.method == "GET":
                await self._let_in(request, READ)
                return _reply_of(await show(request))
            _check_method(request, "POST" if show is None else "GET, POST", is_change=True)
            self._check_source(request.headers.values)
            await self._let_in(request, permission)
            return _reply_of(await change(request))

        return page

    async def _let_in(self, request: PageRequest, permission: str) -> None:
        """Raises Unauthenticated or PermissionDenied."""
        meta = meta_of(
            f"{CONTROL}::{permission}",
            request.headers,
            transport="http",
            clock=self._clock,
            address=request.address,
            certificate=request.certificate,
        )
        proved = await self._identity.prove(meta)
        self._identity.policy.check(proved.principal, CONTROL, permission)

    def _check_source(self, headers: Mapping[str, str]) -> None:
        """A page of somebody else must not be able to press our buttons with a visitor's hands."""
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/json":
            raise InvalidArgument("a change is POSTed with content-type: application/json")
        if headers.get("sec-fetch-site", "none").strip().lower() not in _OWN_PAGES:
            raise PermissionDenied("a page of another site may not change this node")
        origin = headers.get("origin")
        if origin is None:
            return
        host = headers.get("host", "").strip().lower()
        if not host or _netloc_of(origin) != host:
            raise PermissionDenied("a page of another origin may not change this node")
        if not self._identity.is_on and not _is_plain_host(host):
            # A name of somebody else's that was made to lead here has the same origin as itself.
            raise PermissionDenied(
                "without identity, a browser may change this node only by its address or localhost"
            )


def body_of(request: PageRequest, kind: type[Any]) -> Any:
    """Any: `kind`, or InvalidArgument that names the field."""
    try:
        return msgspec.json.decode(request.body or b"{}", type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidArgument(f"malformed body: {error}") from None


def _check_method(request: PageRequest, allowed: str, *, is_change: bool = False) -> None:
    if request.method != ("POST" if is_change else "GET"):
        raise WrongMethod(request.method, allowed)


def _netloc_of(origin: str) -> str:
    try:
        return urlsplit(origin.strip().lower()).netloc
    except ValueError:
        return ""


def _is_plain_host(host: str) -> bool:
    try:
        name = urlsplit(f"//{host}").hostname or ""
        if name == "localhost" or name.endswith(".localhost"):
            return True
        ip_address(name)
    except ValueError:
        return False
    return True


def _reply_of(shown: object) -> PageReply:
    if isinstance(shown, PageReply):
        return msgspec.structs.replace(shown, headers={**_HEADERS, **shown.headers})
    return PageReply(
        headers={**_HEADERS, "content-type": "application/json"}, body=msgspec.json.encode(shown)
    )
