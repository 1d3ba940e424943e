"""One call to a node, over whatever wire its address names."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from omnirelay.cli.ending import BadAddress
from omnirelay.model import limits
from omnirelay.model.errors import InvalidOption, OutcomeUnknown, Unavailable
from omnirelay.model.ports import SystemClock
from omnirelay.node.keys import ClientSettings
from omnirelay.rpc.meta import Request, RequestMeta, Response, Stream
from omnirelay.sdk.addresses import opener
from omnirelay.transports.client_tls import Tls

if TYPE_CHECKING:
    from omnirelay.rpc.transport import Outbound

T = TypeVar("T")
PAUSE_S = 0.2


class Caller:
    """Answers are the structs of the wire, so that `--json` prints what any other client gets."""

    def __init__(self, settings: ClientSettings) -> None:
        self.settings = settings
        self._clock = SystemClock()
        check_address(settings.url)
        try:
            # Opened here and not at the first call: what is missing is the address's fault.
            self._outbound: Outbound = opener(
                settings.url, clock=self._clock, headers=credentials(settings), tls=tls_of(settings)
            )()
        except InvalidOption as error:
            raise BadAddress(error.message) from error

    async def __aenter__(self) -> "Caller":
        await self._outbound.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._outbound.stop()

    async def ask(
        self, verb: str, request: Any, response: type[T], *, is_repeatable: bool = True
    ) -> T:
        """Any: the request's struct. Raises what the node refused with."""
        found = await self.may_ask(verb, request, response, is_repeatable=is_repeatable)
        assert found is not None, f"{verb} is never answered with nothing"
        return found

    async def may_ask(
        self,
        verb: str,
        request: Any,
        response: type[T],
        *,
        wait_s: float = 0.0,
        is_repeatable: bool = True,
    ) -> T | None:
        """None is the empty answer. Repeated for `retry_s` while nobody answers; one that is not
        repeatable only as long as it was surely not taken. Any: as above."""
        until = self._clock.monotonic_ms() + round(self.settings.retry_s * 1000)
        while True:
            try:
                return await self._once(verb, request, response, wait_s)
            except Unavailable as error:
                is_open = isinstance(error, OutcomeUnknown) and not is_repeatable
                if is_open or self._clock.monotonic_ms() >= until:
                    raise
            await asyncio.sleep(PAUSE_S)

    async def _once(self, verb: str, request: Any, response: type[T], wait_s: float) -> T | None:
        codec = self._outbound.codec
        reply = await self._outbound(
            Request(self._meta(verb, wait_s), codec.encode(request), codec)
        )
        assert isinstance(reply, Response)
        return None if reply.empty else codec.decode(reply.body, response)

    async def stream(self, verb: str, request: Any, kind: type[T]) -> AsyncGenerator[T]:
        """Any: as above. Without a deadline: who reads decides when it is enough."""
        codec = self._outbound.codec
        reply = await self._outbound(Request(self._meta(verb, None), codec.encode(request), codec))
        assert isinstance(reply, Stream)
        async with aclosing(reply.messages) as messages:
            async for message in messages:
                yield codec.decode(message, kind)

    def _meta(self, verb: str, wait_s: float | None) -> RequestMeta:
        expires_ms = None
        if wait_s is not None:
            within_ms = round((self.settings.timeout_s + wait_s) * 1000)
            expires_ms = self._clock.monotonic_ms() + min(within_ms, limits.WAIT_MS_MAX * 2)
        return RequestMeta(
            procedure=f"{self.settings.namespace}::{verb}",
            transport=self._outbound.name,
            caller="omnirelay-cli",
            encoding=self._outbound.codec.name,
            expires_ms=expires_ms,
        )


def check_address(url: str) -> None:
    for one in url.split(","):
        try:
            parts = urlsplit(one.strip())
            has_user = "@" in parts.netloc
        except ValueError as error:
            raise BadAddress(f"--url is no address: {error}") from None
        if has_user:  # said without repeating it
            raise BadAddress("an address carries no user or password: use --token or a certificate")


def credentials(settings: ClientSettings) -> dict[str, str]:
    return {} if settings.token is None else {"authorization": f"Bearer {settings.token}"}


def tls_of(settings: ClientSettings) -> Tls | None:
    tls = Tls(
        ca_file=settings.ca_file,
        cert_file=settings.cert_file,
        key_file=settings.key_file,
        server_id=settings.server_id,
    )
    return None if tls == Tls() else tls
