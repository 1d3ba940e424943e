"""Introduces the rooms to one another: from settings to the parts of a node."""

import os
import socket
import ssl
from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote

import msgspec

from omnirelay.identity.settings import Identity
from omnirelay.identity.tls import ServerTls
from omnirelay.mesh.shard_options import ShardOptions
from omnirelay.model import limits
from omnirelay.model.errors import InvalidOption, Unimplemented
from omnirelay.model.ports import Clock, RandomIds, chance
from omnirelay.node.settings import (
    LimitSettings,
    NamespaceSettings,
    NodeSettings,
    Place,
    place,
)
from omnirelay.ops.tracing import Sampling
from omnirelay.rpc.builtin import AccessLog, Deadline, LastResort, SizeLimit
from omnirelay.rpc.dispatcher import Dispatcher
from omnirelay.rpc.limiting import Limiter, RateLimit
from omnirelay.rpc.meta import Reply, Request
from omnirelay.rpc.middleware import Middleware
from omnirelay.rpc.procedure import Handler, Procedure, Registry
from omnirelay.rpc.telemetry import Metrics, Record, Tracing
from omnirelay.rpc.transport import Inbound
from omnirelay.sdk.engine import Engine
from omnirelay.stores.registry import may_have_rivals, open_address
from omnirelay.transports.http_pages import Page
from omnirelay.transports.per_address import PerAddress


def node_id(settings: NodeSettings) -> str:
    return settings.node_id or f"{socket.gethostname()}-{os.getpid()}"


class Line(Protocol):
    """Those who may own a queue, as far as they are known."""

    def rank(self, namespace: str) -> int:
        """This node's place among them."""

    def read_by_all(self, namespace: str) -> int:
        """The newest record format that all of them read."""


def journal_url(settings: NodeSettings, namespace: str, own: NamespaceSettings) -> str:
    """Where the queue's journal is; the folder of one that has no address is made."""
    journal = own.journal or settings.journal
    if journal is not None:
        return journal
    folder = Path(settings.data)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidOption(f"data is {settings.data!r}: {error.strerror}") from error
    return f"sqlite:///{quote(str(folder.absolute() / namespace))}.db"


def build_engine(
    settings: NodeSettings,
    namespace: str,
    own: NamespaceSettings,
    *,
    clock: Clock,
    line: Line,
    stands_by: bool = False,
) -> Engine:
    """Not started yet. `line` is asked where other nodes may own the queue too. A node that stands
    by has a rival whatever its store is: the region that is mirrored."""
    journal = journal_url(settings, namespace, own)
    opened = open_address(journal, namespace)
    if stands_by:
        # On a loop, also over a store that blocks: it waits for the journal and for a promotion.
        opened = msgspec.structs.replace(opened, suspends=True)
    has_rivals = stands_by or may_have_rivals(journal)
    options = ShardOptions(
        node=node_id(settings),
        queue=own.options,
        keep=own.keep,
        require=own.require or settings.require,
        ttl_ms=round(settings.mesh.epoch_s * 1000) if has_rivals else 0,
        stands_by=stands_by,
    )
    rank, reads = partial(line.rank, namespace), partial(line.read_by_all, namespace)
    return Engine(opened, options, clock, RandomIds(), rank=rank, read_by_all=reads)


def build_dispatcher(
    settings: NodeSettings,
    registry: Registry,
    identity: Identity,
    sampling: Sampling,
    *,
    record: Record,
    clock: Clock,
    last: Sequence[Middleware] = (),
) -> Dispatcher:
    """Outermost first. Who calls is proved before anything acts on it, and what it may do is
    decided before its body is looked at; `last` comes when all of that is done."""
    middleware: list[Middleware] = [
        LastResort(RandomIds().lease_id),
        Metrics(record),
        identity.binding,
        AccessLog(clock),
        Tracing(lambda parent: sampling.takes(parent, chance())),
        identity.authorize,
        Deadline(clock),
        SizeLimit(),
    ]
    if settings.limits.rate_per_s is not None:
        middleware.append(RateLimit(PrincipalLimits(settings.limits, clock)))
    return Dispatcher(registry, [*middleware, *last])


class PrincipalLimits:
    """A limiter for each principal, so that a greedy one slows only itself."""

    def __init__(self, settings: LimitSettings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._limiters: OrderedDict[str, Limiter] = OrderedDict()

    def __call__(self, request: Request, procedure: Procedure) -> Limiter | None:
        principal = request.meta.principal
        limiter = self._limiters.get(principal)
        if limiter is None:
            assert self._settings.rate_per_s is not None
            limiter = self._limiters[principal] = Limiter(
                self._clock, rate_per_s=self._settings.rate_per_s, burst=self._settings.burst
            )
            if len(self._limiters) > limits.LIMITED_PRINCIPALS_MAX:
                self._limiters.popitem(last=False)
        self._limiters.move_to_end(principal)
        return limiter


def _secrets(tls: ServerTls) -> tuple[bytes | None, bytes | None, bytes | None]:
    """gRPC in Python cannot ask for a client certificate without insisting on one, so the
    authority is named only where one is required; elsewhere callers bring a token."""
    pem = tls.pem()
    return pem.key, pem.certificate, pem.ca if tls.require_client_certificate else None


def _shared(identity: Identity, clock: Clock, most: int, door: str) -> dict[str, Any]:
    """What every inbound is given. Any: keyword arguments, which are typed themselves."""
    per_address = PerAddress(door, clock, most=most, is_exempt=identity.proxies.is_listed)
    return {
        "clock": clock,
        "read_certificate": identity.certificate_of,
        "per_address": per_address,
    }


def build_inbounds(
    settings: NodeSettings,
    dispatcher: Dispatcher,
    identity: Identity,
    *,
    clock: Clock,
    pages: dict[str, Page],
    is_well: Callable[[], bool],
) -> list[Inbound]:
    """Not started yet."""
    registry, tls = dispatcher.registry, identity.tls
    context = None if tls is None else tls.context
    most = settings.limits.connections_per_address
    shared = partial(_shared, identity, clock, most)
    inbounds: list[Inbound] = []
    if (at := place("stream", settings.stream)) is not None:
        from omnirelay.transports.stream_inbound import StreamInbound

        where: dict[str, Any] = {"host": at.host, "port": at.port, "path": at.path}
        inbounds.append(
            StreamInbound(dispatcher, registry, tls=context, **where, **shared("stream"))
        )
    if (at := place("grpc", settings.grpc)) is not None:
        from omnirelay.transports.grpc_inbound import GrpcInbound
        from omnirelay.transports.grpc_service import REPLICATION_HUB, RESOURCE_LEASE

        secrets = None if tls is None else partial(_secrets, tls)
        inbounds.append(
            GrpcInbound(
                dispatcher,
                registry=registry,
                host=at.host,
                port=at.port,
                tls=secrets,
                is_well=is_well,
                services=(RESOURCE_LEASE, *((REPLICATION_HUB,) if settings.hub else ())),
                **shared("grpc"),
            )
        )
    http = partial(_http_door, registry=registry, context=context, shared=shared)
    if (at := place("http", settings.http)) is not None:
        shown = pages if not settings.control else {path: pages[path] for path in HEALTH}
        inbounds.append(http("http", at, dispatcher, pages=shown))
    if (at := place("control", settings.control)) is not None:
        inbounds.append(http("control", at, _no_calls, pages=pages))
    return inbounds


HEALTH = ("/healthz", "/readyz")
"""What a balancer in front of the calls asks for, wherever the other pages are."""


def _http_door(
    name: str,
    at: Place,
    handler: Handler,
    *,
    registry: Registry,
    context: ssl.SSLContext | None,
    pages: dict[str, Page],
    shared: Callable[[str], dict[str, Any]],
) -> Inbound:
    from omnirelay.transports.http_inbound import HttpInbound

    return HttpInbound(
        handler,
        registry,
        name=name,
        host=at.host,
        port=at.port,
        tls=context,
        pages=pages,
        **shared(name),
    )


async def _no_calls(request: Request) -> Reply:
    raise Unimplemented("this is the node's control plane, which takes no calls: use another door")
