"""One connection to NATS and the few requests a journal needs, with our errors.

Reads ask two different authorities. Any replica answers a direct get, quickly and in batches, but
one that lags may not have the newest; the stream's leader has. So batches come from anywhere, and
"there is no more" only ever from the leader.
"""

import asyncio
import base64
import json
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import msgspec
import nats
import nats.errors
import nats.js.errors
from nats.aio.client import Client

from omnirelay.model import limits
from omnirelay.model.errors import InvalidOption, OmniRelayError, Unavailable
from omnirelay.stores.nats_address import NatsAddress

if TYPE_CHECKING:
    from nats.aio.msg import Msg
    from nats.js.manager import JetStreamManager

CONNECT_S = 5.0
REQUEST_S = 5.0
RECONNECT_S = 0.2
PING_S = 2.0
"""A server that leaves two pings unanswered is gone, though no connection says so."""
UNTAKEN_S = 5.0
"""What its system has not taken for so long never will be."""
OLDEST_SERVER = (2, 11)
"""The first that answers a direct get with a batch."""
_BATCHES = (2, 12)
"""The first that stores several messages as one."""

Answer = dict[str, Any]  # Any: JSON of the server
Message = tuple[dict[str, str], bytes]
"""Headers and data."""


class StoredMessage(msgspec.Struct, frozen=True, gc=False):
    sequence: int
    """Its place in the stream, which is not the sequence of any record."""
    headers: dict[str, str]
    data: bytes


class NatsLink:
    """Opened on the loop that uses it. After a break it finds another server by itself."""

    def __init__(self, address: NatsAddress) -> None:
        self.address = address
        self._client: Client | None = None

    @property
    def client(self) -> Client:
        assert self._client is not None, "the journal is not open"
        return self._client

    @property
    def is_open(self) -> bool:
        return self._client is not None and not self._client.is_closed

    @property
    def manager(self) -> "JetStreamManager":
        return self.client.jsm(timeout=REQUEST_S)

    async def open(self) -> None:
        """Raises Unavailable within a bounded time if no server answers."""
        await self.close()
        client = self._client = Client()
        last: list[Exception] = []

        async def note(error: Exception) -> None:
            last[:] = [error]

        try:
            async with asyncio.timeout(CONNECT_S):
                await client.connect(
                    list(self.address.servers),
                    error_cb=note,
                    reconnect_time_wait=RECONNECT_S,  # type: ignore[arg-type]
                    max_reconnect_attempts=-1,
                    ping_interval=PING_S,  # type: ignore[arg-type]
                    reconnected_cb=self._bound,
                    user_credentials=self.address.creds,
                    pending_size=limits.NATS_PENDING_BYTES_MAX,
                )
        except (TimeoutError, OSError, nats.errors.Error) as error:
            await self.close()
            raise self._unreachable(last[0] if last else error) from None
        except BaseException:
            await self.close()
            raise
        await self._bound()
        self._check_version()

    async def _bound(self) -> None:
        """Before the client closes a connection or tries another server, it waits until all that
        it has written has left. To a host that is gone, that would take a quarter of an hour."""
        # The client has no other way to its socket, and a WebSocket's is deeper yet.
        writer = getattr(self._client and self._client._transport, "_io_writer", None)
        option = getattr(socket, "TCP_USER_TIMEOUT", None)  # not every system has it
        if writer is not None and option is not None:
            line = writer.get_extra_info("socket")
            line.setsockopt(socket.IPPROTO_TCP, option, round(UNTAKEN_S * 1000))

    def _unreachable(self, error: Exception) -> OmniRelayError:
        shown = self.address.shown
        if isinstance(error, nats.errors.AuthorizationError) or "Authorization" in str(error):
            return InvalidOption(f"{shown}: the server refuses this user: correct the credentials")
        return Unavailable(
            f"{shown}: no NATS server answered within {CONNECT_S:g} s "
            f"({type(error).__name__}): start one, or correct the address"
        )

    def _check_version(self) -> None:
        version = self.client.connected_server_version
        if (version.major, version.minor) < OLDEST_SERVER:
            raise InvalidOption(
                f"{self.address.shown}: NATS {version.major}.{version.minor} cannot read in "
                f"batches: upgrade it to {OLDEST_SERVER[0]}.{OLDEST_SERVER[1]} or later"
            )

    @property
    def knows_batches(self) -> bool:
        version = self.client.connected_server_version
        return (version.major, version.minor) >= _BATCHES

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None and not client.is_closed:
            with suppress(OSError):  # it would have liked to say goodbye
                await client.close()

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Of requests that change nothing, or that the caller may repeat."""
        try:
            yield
        except nats.js.errors.APIError as error:
            raise Unavailable(f"{self.address.shown}: {error.description or error}") from error
        except (nats.errors.Error, TimeoutError, OSError) as error:
            words = str(error) or type(error).__name__
            raise Unavailable(f"{self.address.shown} does not answer: {words}") from error

    async def api(self, name: str, request: object) -> Answer:
        """Raises nats' own errors: the caller knows which of them it can answer."""
        body = json.dumps(request).encode()
        reply = await self.client.request(f"$JS.API.{name}", body, timeout=REQUEST_S)
        answer: Answer = json.loads(reply.data)
        if "error" in answer:
            nats.js.errors.APIError.from_error(answer["error"])
        return answer

    async def publish(
        self, subject: str, data: bytes, *, headers: dict[str, str], timeout_s: float
    ) -> int:
        """Stored when it returns, at the place returned. Raises nats' own errors."""
        reply = await self.client.request(subject, data, timeout=timeout_s, headers=headers)
        answer: Answer = json.loads(reply.data)
        if "error" in answer:
            nats.js.errors.APIError.from_error(answer["error"])
        place: int = answer["seq"]
        return place

    async def publish_together(
        self, subject: str, messages: Sequence[Message], *, timeout_s: float
    ) -> int:
        """All of them are stored when it returns, in places that follow one another, the last at
        the one returned; or none is. Only the first may name a condition. Raises nats' own errors:
        one of the API says that nothing was stored."""
        batch = self.client.new_inbox().rpartition(".")[2]
        for number, (headers, data) in enumerate(messages, 1):
            own = {**headers, "Nats-Batch-Id": batch, "Nats-Batch-Sequence": str(number)}
            if number < len(messages):
                await self.client.publish(subject, data, headers=own)
                continue
            own["Nats-Batch-Commit"] = "1"
            return await self.publish(subject, data, headers=own, timeout_s=timeout_s)
        raise AssertionError("a batch of nothing")

    async def leader_get(self, stream: str, **request: Any) -> StoredMessage | None:  # Any: JSON
        """One message as the stream's leader has it; None if there is none."""
        with self.errors():
            try:
                answer = await self.api(f"STREAM.MSG.GET.{stream}", request)
            except nats.js.errors.NotFoundError as error:
                if error.err_code != _NO_MESSAGE:
                    raise
                return None
        message = answer["message"]
        headers = base64.b64decode(message.get("hdrs", "")).decode("utf-8", "replace")
        fields = (line.partition(":") for line in headers.split("\r\n")[1:] if line)
        return StoredMessage(
            message["seq"],
            {name: value.strip() for name, _, value in fields},
            base64.b64decode(message.get("data", "")),
        )

    async def batch(self, stream: str, **request: Any) -> list[StoredMessage]:  # Any: JSON
        """What a direct get gives, in order: up to `batch` messages, or the last of each subject
        of `multi_last`. It may lack the newest."""
        client = self.client
        inbox = client.new_inbox()
        found: list[StoredMessage] = []
        with self.errors():
            replies = await client.subscribe(
                inbox, pending_bytes_limit=2 * limits.NATS_PENDING_BYTES_MAX
            )
            try:
                body = json.dumps(request).encode()
                await client.publish(f"$JS.API.DIRECT.GET.{stream}", body, reply=inbox)
                while message := _lifted(await replies.next_msg(timeout=REQUEST_S)):
                    found.append(message)
            finally:
                if not client.is_closed:
                    await replies.unsubscribe()
        return found


_NO_MESSAGE = 10037


def _lifted(message: "Msg") -> StoredMessage | None:
    """None: the answer ends here."""
    headers = message.headers or {}
    status = headers.get("Status")
    if status is None:
        return StoredMessage(int(headers["Nats-Sequence"]), headers, message.data)
    if status in ("204", "404"):
        return None
    if status == "503":
        raise nats.errors.NoRespondersError
    raise nats.errors.Error(f"nats: a direct get ended with status {status}")
