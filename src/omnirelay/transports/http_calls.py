"""From an HTTP request to the dispatcher or a page, and back."""

import asyncio
import logging
from collections.abc import Mapping
from urllib.parse import parse_qsl, unquote

import msgspec

from omnirelay.model import limits
from omnirelay.model.errors import (
    Cancelled,
    Closed,
    InvalidArgument,
    OmniRelayError,
    Overloaded,
    PermissionDenied,
    TooLarge,
    Unimplemented,
)
from omnirelay.model.ports import Clock
from omnirelay.rpc.codec import JSON, Codec
from omnirelay.rpc.headers import (
    ENCODING,
    PROCEDURE,
    SHARD_KEY,
    Headers,
    codec_of,
    error_headers,
    meta_of,
    own_headers,
    reply_headers,
)
from omnirelay.rpc.meta import Reply, Request, RequestMeta, Response, Stream
from omnirelay.rpc.procedure import Handler, Kind, Procedure, Registry
from omnirelay.rpc.status import body_of
from omnirelay.transports.http_events import CONTENT_TYPE, event_of
from omnirelay.transports.http_exchange import Exchange, header_lines
from omnirelay.transports.http_options import (
    CompressedBody,
    HeadersTooLarge,
    UnknownPath,
    WrongMethod,
    http_status,
)
from omnirelay.transports.http_pages import Page, PageRequest, Pages
from omnirelay.transports.http_streams import StreamReply, line_of
from omnirelay.transports.http_traffic import Traffic

log = logging.getLogger(__name__)

NAME = "http"
_CONTENT_TYPES = {"json": "application/json", "msgpack": "application/msgpack"}
_MSGPACK = ("application/msgpack", "application/x-msgpack", "application/vnd.msgpack")
_STREAM_HEADERS = {"cache-control": "no-store", "x-accel-buffering": "no"}
_PREFIX = "/v1/"


class HttpCalls:
    """Answers every exchange, whatever goes wrong."""

    def __init__(
        self, handler: Handler, registry: Registry, pages: Pages, traffic: Traffic, clock: Clock
    ) -> None:
        self._handler = handler
        self._registry = registry
        self._pages = pages
        self._traffic = traffic
        self._clock = clock
        self._heads: dict[str, bytes] = {}

    async def answer(self, exchange: Exchange) -> None:
        try:
            await self._answer(exchange)
        except OmniRelayError as error:
            if not exchange.is_begun:
                self._refuse(exchange, error)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            # Not the caller has left: something the call waited for was cancelled under it.
            if not exchange.is_begun:
                self._refuse(exchange, Cancelled("the call was cancelled"))
        except Exception:
            log.exception("a bug while answering %s %s", exchange.method, exchange.raw_path[:200])
            if not exchange.is_begun:
                self._refuse(exchange, OmniRelayError("internal error"))
        if not exchange.is_answered:
            # Half an answer cannot be mended, only cut off so that nobody takes it for a whole one.
            exchange.stays_open = False

    async def _answer(self, exchange: Exchange) -> None:
        if exchange.refusal is not None:
            raise exchange.refusal
        if self._traffic.is_draining:
            raise Closed("the node is stopping")
        if self._traffic.calls > self._traffic.options.calls_max:
            raise Overloaded("too many calls are under way")
        headers = _headers_of(exchange)
        _check_source(exchange, headers.values)
        path = exchange.raw_path
        if path.startswith(_PREFIX):
            await self._call(exchange, headers, _name_of(path))
        elif path == "/" and PROCEDURE in headers.values:
            await self._call(exchange, headers, headers.values[PROCEDURE])
        else:
            await self._show(exchange, headers)

    # -- pages ------------------------------------------------------------------------------------

    async def _show(self, exchange: Exchange, headers: Headers) -> None:
        page = self._pages.find(exchange.path)
        if page is None:
            raise UnknownPath(
                f"nothing is at {exchange.path[:200]!r}: calls are POST /v1/namespace/verb"
            )
        method = "GET" if exchange.method == "HEAD" else exchange.method
        request = PageRequest(
            method=method,
            path=exchange.path,
            query=dict(parse_qsl(exchange.query, keep_blank_values=True)),
            headers=headers,
            body=await exchange.read(),
            address=exchange.wire.address,
            certificate=exchange.wire.certificate,
        )
        await _reply_page(exchange, page, request)

    # -- calls ------------------------------------------------------------------------------------

    async def _call(self, exchange: Exchange, headers: Headers, name: str) -> None:
        if exchange.method not in ("POST", "GET"):
            raise WrongMethod(exchange.method, "POST")
        if headers.values.get(PROCEDURE, name) != name:
            raise InvalidArgument(f"the path says {name[:200]!r}, Rpc-Procedure something else")
        procedure = self._registry.find(name)
        is_get = exchange.method == "GET"
        if is_get and procedure.kind is not Kind.SERVER_STREAM:
            raise WrongMethod("GET", "POST")
        if procedure.kind is Kind.DUPLEX:
            raise Unimplemented(
                f"{name} talks both ways at once, which HTTP/1.1 cannot: use gRPC or the stream"
            )
        meta = self._meta(exchange, headers, name)
        codec = codec_of(meta)
        if procedure.kind in (Kind.SERVER_STREAM, Kind.CLIENT_STREAM) and codec is not JSON:
            raise InvalidArgument(f"{name} is a stream, which HTTP carries as JSON only")
        reply = await self._dispatch(exchange, procedure, meta, codec)
        if isinstance(reply, Stream):
            wants_events = is_get or CONTENT_TYPE in headers.values.get("accept", "")
            await self._stream(exchange, meta, reply, wants_events=wants_events)
        elif procedure.kind is Kind.ONEWAY:
            exchange.reply(202, self._head_of(meta, reply))
        else:
            exchange.reply(204 if reply.empty else 200, self._head_of(meta, reply), reply.body)

    def _meta(self, exchange: Exchange, headers: Headers, name: str) -> RequestMeta:
        values = headers.values
        kind = values.get("content-type")
        if kind is not None and ENCODING not in values and kind.lower().startswith(_MSGPACK):
            values[ENCODING] = "msgpack"
        return meta_of(
            name,
            headers,
            transport=NAME,
            clock=self._clock,
            address=exchange.wire.address,
            certificate=exchange.wire.certificate,
        )

    async def _dispatch(
        self, exchange: Exchange, procedure: Procedure, meta: RequestMeta, codec: Codec
    ) -> Reply:
        if procedure.kind is Kind.CLIENT_STREAM:
            request = Request(meta=meta, codec=codec, inbound=exchange.lines())
        elif exchange.method == "GET":
            body = _body_of_query(procedure, exchange.query, meta.headers.get("last-event-id"))
            request = Request(meta=meta, codec=codec, body=body)
        else:
            request = Request(meta=meta, codec=codec, body=await exchange.read())
        return await self._handler(request)

    async def _stream(
        self, exchange: Exchange, meta: RequestMeta, reply: Stream, *, wants_events: bool
    ) -> None:
        kind = CONTENT_TYPE if wants_events else "application/x-ndjson"
        head = header_lines({"content-type": kind, **_STREAM_HEADERS, **reply_headers(meta)})
        framing = event_of if wants_events else line_of
        await StreamReply(exchange, head, framing).run(reply.messages)

    def _head_of(self, meta: RequestMeta, reply: Response) -> bytes:
        if meta.shard_key is not None:
            head = _head(meta)
        elif (known := self._heads.get(meta.encoding)) is not None:
            head = known
        else:
            head = self._heads[meta.encoding] = _head(meta)
        if reply.headers and (own := own_headers(reply.headers)):
            return head + header_lines(own)
        return head

    def _refuse(self, exchange: Exchange, error: OmniRelayError) -> None:
        key = exchange.header(SHARD_KEY)
        known = key if key and len(key) <= limits.NAME_CHARS_MAX else None
        headers = {
            "content-type": _CONTENT_TYPES[JSON.name],
            **reply_headers(RequestMeta(procedure="", transport=NAME, shard_key=known)),
            **error_headers(error),
        }
        if isinstance(error, WrongMethod):
            headers["allow"] = error.allowed
        exchange.reply(http_status(error), header_lines(headers), JSON.encode(body_of(error)))


def _head(meta: RequestMeta) -> bytes:
    return header_lines({"content-type": _CONTENT_TYPES[meta.encoding], **reply_headers(meta)})


def _headers_of(exchange: Exchange) -> Headers:
    try:
        return Headers(exchange.pairs)
    except TooLarge as error:
        raise HeadersTooLarge(error.message) from None


def _check_source(exchange: Exchange, values: Mapping[str, str]) -> None:
    encoding = values.get("content-encoding")
    if encoding is not None and encoding.strip().lower() not in ("", "identity"):
        raise CompressedBody("compressed bodies are not taken: send it plain")
    # A browser that shows another site's page says so; nobody else sends this header.
    if values.get("sec-fetch-site") == "cross-site" and exchange.method not in ("GET", "HEAD"):
        raise PermissionDenied("a page of another site may not call this node")


def _name_of(path: str) -> str:
    namespace, parted, verb = path[len(_PREFIX) :].partition("/")
    if not namespace or not parted or not verb or "/" in verb:
        raise UnknownPath(f"calls are POST /v1/namespace/verb, not {path[:200]!r}")
    name = f"{namespace}::{verb}"
    return unquote(name) if "%" in name else name


def _body_of_query(procedure: Procedure, query: str, last_event_id: str | None) -> bytes:
    """Texts become what the procedure's request declares; a name that came twice is a list."""
    try:
        pairs = parse_qsl(query, keep_blank_values=True, max_num_fields=100)
    except ValueError:
        raise InvalidArgument("too many query parameters") from None
    members: dict[str, str | int | list[str]] = {}
    for name, value in pairs:
        before = members.get(name)
        if before is None:
            members[name] = value
        else:
            members[name] = [*before, value] if isinstance(before, list) else [str(before), value]
    if last_event_id is not None:
        members["from"] = _after(last_event_id)
    if procedure.request is None:
        return JSON.encode(members)
    try:
        return JSON.encode(msgspec.convert(members, procedure.request, strict=False))
    except msgspec.ValidationError as error:
        raise InvalidArgument(f"malformed query: {error}") from None


def _after(last_event_id: str) -> int:
    """A reader names the last event it has, and wants the next."""
    if not last_event_id.isascii() or not last_event_id.isdigit() or len(last_event_id) > 18:
        raise InvalidArgument(f"Last-Event-ID is {last_event_id[:40]!r}, must be a number")
    return int(last_event_id) + 1


async def _reply_page(exchange: Exchange, page: Page, request: PageRequest) -> None:
    reply = await page(request)
    headers = {"x-content-type-options": "nosniff", **reply.headers}
    if reply.stream is None:
        exchange.reply(reply.status, header_lines(headers), reply.body)
        return
    head = header_lines({"content-type": CONTENT_TYPE, **_STREAM_HEADERS, **headers})
    if exchange.method == "HEAD":
        await reply.stream.aclose()
        exchange.reply(reply.status, head)
        return
    await StreamReply(exchange, head, _as_it_is).run(reply.stream)


def _as_it_is(chunk: bytes) -> bytes:
    return chunk
