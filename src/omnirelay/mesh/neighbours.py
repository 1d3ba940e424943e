"""The other nodes of a mesh: who of them answers, and which shards they should have.

Asked in short intervals; one that has not answered for an epoch's time to live does not count. A
wrong belief costs a needless try or a late one, never a second owner.
"""

import asyncio
import logging
import sys
from collections.abc import Callable, Mapping, Sequence

from omnirelay.model import limits
from omnirelay.model.errors import (
    OmniRelayError,
    PermissionDenied,
    Unavailable,
    Unimplemented,
)
from omnirelay.model.items import Wire
from omnirelay.model.ports import Clock
from omnirelay.peers.rendezvous import ranked
from omnirelay.rpc.meta import Request, RequestMeta, Response
from omnirelay.rpc.transport import Outbound

log = logging.getLogger(__name__)

Reach = Callable[[str], Outbound]
"""An outbound to the node at an address."""


class Known(Wire, frozen=True, gc=False):
    """What a node knows of one shard."""

    owner: str
    epoch: int
    last_sequence: int
    is_hot: bool = False
    """It serves the shard, or has read its journal to the end: it could take over at once."""


class HelloRequest(Wire, frozen=True, gc=False):
    pass


class HelloResponse(Wire, frozen=True, gc=False):
    """Who answers, and what it knows of each shard that may have rivals, by namespace."""

    node_id: str
    url: str
    version: str
    shards: dict[str, Known]
    format: int = 1
    """The newest record format that it reads."""
    is_leaving: bool = False
    """It gives away what it owns and wants nothing more."""


class TakeOverRequest(Wire, frozen=True, gc=False):
    wait_ms: int = 2_000


class TakeOverResponse(Wire, frozen=True, gc=False):
    epoch: int
    """The one the new owner has begun."""


class Neighbour:
    def __init__(self, url: str, outbound: Outbound) -> None:
        self.url = url
        self.outbound = outbound
        self.node_id: str | None = None
        self.version = ""
        self.format = 1
        self.shards: Mapping[str, Known] = {}
        self.is_leaving = False
        self.heard_ms: int | None = None
        """When it last answered."""
        self.since_ms: int | None = None
        """Since when it has always answered."""
        self.asked_ms: int | None = None
        """When it was asked what it last answered."""
        self.hot_ms: dict[str, int] = {}
        """Since when it has followed a shard in the epoch that this node knows."""
        self.level_ms: dict[str, int] = {}
        """When it last had all of a shard's journal that this node had as it asked."""

    async def ask(self, procedure: str, message: Wire, kind: type[Wire], expires_ms: int) -> Wire:
        """Raises what the call raises."""
        codec = self.outbound.codec
        meta = RequestMeta(
            procedure=procedure,
            transport=self.outbound.name,
            encoding=codec.name,
            expires_ms=expires_ms,
        )
        reply = await self.outbound(Request(meta, codec.encode(message), codec))
        assert isinstance(reply, Response)
        answer: Wire = codec.decode(reply.body, kind)
        return answer

    def begins(self, shard: str, epoch: int) -> None:
        """It has said that it owns the shard now."""
        last = self.shards[shard].last_sequence
        owned = Known(self.node_id or "", epoch, last, is_hot=True)
        self.shards = {**self.shards, shard: owned}

    def settle_again(self) -> None:
        """It did not do as it was asked: it has to prove itself for a while."""
        self.since_ms = None
        self.hot_ms.clear()


class Neighbours:
    """Belongs to the loop that runs it; `rank` may be asked from any thread."""

    def __init__(
        self,
        node_id: str,
        urls: Sequence[str],
        reach: Reach,
        *,
        namespaces: Sequence[str],
        clock: Clock,
        ttl_ms: int,
        own: Callable[[], Mapping[str, Known]],
    ) -> None:
        self._node_id = node_id
        self._namespaces = namespaces
        self._clock = clock
        self._ttl_ms = ttl_ms
        self._own = own
        self.all = [Neighbour(url, reach(url)) for url in urls]
        self.is_leaving = False
        """This node counts itself out."""

    async def run(self) -> None:
        for one in self.all:
            await one.outbound.start()
        try:
            async with asyncio.TaskGroup() as group:
                for one in self.all:
                    group.create_task(self._watch(one))
        finally:
            await asyncio.gather(*(one.outbound.stop() for one in self.all))

    async def _watch(self, one: Neighbour) -> None:
        pause_s = self._ttl_ms / 3000
        while True:
            await self._greet(one)
            await asyncio.sleep(pause_s)

    async def look_around(self) -> None:
        """Ask everybody now."""
        await asyncio.gather(*map(self._greet, self.all))

    async def _greet(self, one: Neighbour) -> None:
        now = self._clock.monotonic_ms()
        had = self._own()
        try:
            self._heard(one, await self._hello(one, now + self._ttl_ms), had, now)
        except OmniRelayError as error:
            one.since_ms = None
            log.debug("node %s does not answer: %s", one.url, error)

    async def _hello(self, one: Neighbour, expires_ms: int) -> HelloResponse:
        """In the first namespace that it serves too."""
        refusal: OmniRelayError = Unavailable(f"node {one.url} serves nothing that this one does")
        for namespace in self._namespaces:
            try:
                answer = await one.ask(
                    f"{namespace}::hello", HelloRequest(), HelloResponse, expires_ms
                )
            except (Unimplemented, PermissionDenied) as error:
                refusal = error
                continue
            assert isinstance(answer, HelloResponse)
            return answer
        raise refusal

    def _heard(
        self, one: Neighbour, hello: HelloResponse, had: Mapping[str, Known], asked_ms: int
    ) -> None:
        one.node_id, one.heard_ms = hello.node_id, self._clock.monotonic_ms()
        one.version, one.shards, one.is_leaving = hello.version, hello.shards, hello.is_leaving
        one.format = hello.format
        one.asked_ms = asked_ms
        for name, known in hello.shards.items():
            own = had.get(name)
            if own is None or known.last_sequence >= own.last_sequence:
                one.level_ms[name] = asked_ms
            else:
                one.level_ms.setdefault(name, asked_ms - 1)  # behind since we know it
            # One that is cut off may believe in an epoch that is over.
            if known.is_hot and own is not None and known.epoch >= own.epoch:
                one.hot_ms.setdefault(name, one.heard_ms)
            else:
                one.hot_ms.pop(name, None)
        if hello.is_leaving:
            one.since_ms = None
        elif one.since_ms is None:
            one.since_ms = one.heard_ms
            log.info("node %s answers at %s", hello.node_id, one.url)

    def is_answering(self, one: Neighbour) -> bool:
        """And it is another node than this one."""
        return self._was_heard(one, self._ttl_ms)

    def _was_heard(self, one: Neighbour, within_ms: int) -> bool:
        return (
            one.node_id not in (None, self._node_id)
            and one.heard_ms is not None
            and self._clock.monotonic_ms() - one.heard_ms <= within_ms
        )

    def live(self, for_ms: int = 0) -> list[Neighbour]:
        """Those that answer, have for so long, and stay; this node is not among them."""
        now = self._clock.monotonic_ms()
        return [
            one
            for one in self.all
            if self.is_answering(one)
            and (since_ms := one.since_ms) is not None
            and now - since_ms >= for_ms
        ]

    def rank(self, shard: str) -> int:
        """This node's place in the line for a shard."""
        others = [one.node_id for one in self.live() if one.node_id and shard in one.shards]
        if self.is_leaving:
            return len(others)
        return ranked(shard, [self._node_id, *others]).index(self._node_id)

    def read_by_all(self, shard: str) -> int:
        """The newest record format that every node reads which serves the shard and answers, or
        answered lately: one that is cut off from here may follow the journal all the same."""
        known = [
            one
            for one in self.all
            if self._was_heard(one, limits.SILENT_NODE_MS_MAX) and shard in one.shards
        ]
        return min((one.format for one in known), default=sys.maxsize)

    def heir(self, shard: str, *, settled_ms: int = 0) -> Neighbour | None:
        """Whom this node should hand the shard to: the best of those that could have begun at once
        for `settled_ms`. None if there is nobody, or this node is better."""
        now = self._clock.monotonic_ms()
        known = {
            one.node_id: one
            for one in self.live(settled_ms)
            if one.node_id and now - one.hot_ms.get(shard, now + 1) >= settled_ms
        }
        if not known:
            return None
        me = [] if self.is_leaving else [self._node_id]
        return known.get(ranked(shard, [*known, *me])[0])

    def lag_ms(self, one: Neighbour, shard: str) -> int:
        """How long ago it was level with this node; 0 if it was when it last answered."""
        level_ms = one.level_ms.get(shard)
        if level_ms is None or level_ms == one.asked_ms:
            return 0
        return self._clock.monotonic_ms() - level_ms


async def hand_over(heir: Neighbour, namespace: str, clock: Clock, wait_ms: int) -> int:
    """Ask it to take the shard; returns the epoch it has begun. Raises what the call raises."""
    answer = await heir.ask(
        f"{namespace}::takeOver",
        TakeOverRequest(wait_ms),
        TakeOverResponse,
        clock.monotonic_ms() + wait_ms,
    )
    if not isinstance(answer, TakeOverResponse):
        raise Unavailable(f"node {heir.url} did not take {namespace} over")
    return answer.epoch
