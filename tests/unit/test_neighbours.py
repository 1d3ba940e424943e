"""What a node makes of the others: who answers, who is next, and what all of them can read."""

import asyncio
import sys
from collections.abc import Coroutine
from typing import Any

import msgspec

from omnirelay.mesh.neighbours import HelloRequest, HelloResponse, Known, Neighbours
from omnirelay.model import limits
from omnirelay.model.errors import Unavailable
from omnirelay.peers.rendezvous import ranked
from omnirelay.rpc.dispatcher import Dispatcher
from omnirelay.rpc.meta import RequestMeta
from omnirelay.rpc.procedure import Registry
from omnirelay.testing.loop import SimClock, run_simulated, sim_loop
from omnirelay.transports.memory import MemoryOutbound

TTL_MS = 900
SHARD = "orders"
MINE = Known("me", 3, 100, is_hot=True)
FOLLOWS = Known("me", 3, 100, is_hot=True)


class Other:
    """A node that says what it is told to say."""

    def __init__(self, name: str, **known: Known) -> None:
        self.hello = HelloResponse(name, f"stream://{name}", "1", known)
        self.is_silent = False

    def say(self, **changed: Any) -> None:
        """Any: fields of its answer."""
        self.hello = msgspec.structs.replace(self.hello, **changed)

    def outbound(self) -> MemoryOutbound:
        registry = Registry()
        registry.unary(f"{SHARD}::hello", self._answer, HelloRequest, HelloResponse)
        return MemoryOutbound(Dispatcher(registry))

    async def _answer(self, meta: RequestMeta, request: HelloRequest) -> HelloResponse:
        if self.is_silent:
            raise Unavailable("it does not answer")
        return self.hello


def mesh(*others: Other) -> Neighbours:
    known = {other.hello.url: other for other in others}
    return Neighbours(
        "me",
        list(known),
        lambda url: known[url].outbound(),
        namespaces=["users", SHARD],
        clock=SimClock(sim_loop()),
        ttl_ms=TTL_MS,
        own=lambda: {SHARD: MINE},
    )


def simulated(main: Coroutine[Any, Any, None]) -> None:
    async def run() -> None:
        await main

    run_simulated(run, seed=1)


def test_only_those_that_answer_stand_in_line() -> None:
    async def run() -> None:
        a, b = Other("a", orders=FOLLOWS), Other("b", users=FOLLOWS)
        here = mesh(a, b)
        assert (here.rank(SHARD), here.heir(SHARD)) == (0, None)
        await here.look_around()
        line = ranked(SHARD, ["me", "a"])
        assert here.rank(SHARD) == line.index("me"), "b does not serve it"
        here.is_leaving = True
        assert here.rank(SHARD) == 1
        heir = here.heir(SHARD)
        assert heir is not None
        assert heir.node_id == "a"
        a.is_silent = True
        await here.look_around()
        assert here.heir(SHARD) is None
        await asyncio.sleep(TTL_MS / 1000 + 0.1)
        assert not any(map(here.is_answering, here.all))

    simulated(run())


def test_nobody_is_given_a_queue_that_could_not_begin_at_once() -> None:
    async def run() -> None:
        a = Other("a", orders=msgspec.structs.replace(FOLLOWS, is_hot=False))
        here = mesh(a)
        here.is_leaving = True
        await here.look_around()
        assert here.heir(SHARD) is None, "it is catching up"
        a.say(shards={SHARD: msgspec.structs.replace(FOLLOWS, epoch=2)})
        await here.look_around()
        assert here.heir(SHARD) is None, "it believes in an epoch that is over"
        a.say(shards={SHARD: FOLLOWS})
        await here.look_around()
        assert here.heir(SHARD) is not None
        assert here.heir(SHARD, settled_ms=500) is None
        await asyncio.sleep(0.6)
        await here.look_around()
        assert here.heir(SHARD, settled_ms=500) is not None
        here.all[0].settle_again()
        await here.look_around()
        assert here.heir(SHARD, settled_ms=500) is None
        a.say(is_leaving=True)
        await here.look_around()
        assert here.heir(SHARD) is None

    simulated(run())


def test_what_is_read_by_all_is_what_the_oldest_that_answers_reads() -> None:
    async def run() -> None:
        a, b = Other("a", orders=FOLLOWS), Other("b", orders=FOLLOWS)
        here = mesh(a, b)
        assert here.read_by_all(SHARD) == sys.maxsize
        a.say(format=7)
        await here.look_around()
        assert here.read_by_all(SHARD) == 1
        b.say(format=8, is_leaving=True)
        await here.look_around()
        assert here.read_by_all(SHARD) == 7

    simulated(run())


def test_a_node_that_fell_silent_is_still_written_for_but_not_for_ever() -> None:
    async def run() -> None:
        a = Other("a", orders=FOLLOWS)
        a.say(format=2)
        here = mesh(a)
        await here.look_around()
        a.is_silent = True
        await asyncio.sleep(10 * TTL_MS / 1000)
        await here.look_around()
        assert not here.is_answering(here.all[0])
        assert here.read_by_all(SHARD) == 2, "it may be cut off from here and follow the journal"
        a.is_silent = False
        a.say(format=3)
        await here.look_around()
        assert here.read_by_all(SHARD) == 3, "it came back upgraded"
        a.is_silent = True
        await asyncio.sleep(limits.SILENT_NODE_MS_MAX / 1000 + 1)
        assert here.read_by_all(SHARD) == sys.maxsize

    simulated(run())


def test_lag_counts_from_when_another_was_last_level() -> None:
    async def run() -> None:
        a = Other("a", orders=FOLLOWS)
        here = mesh(a)
        await here.look_around()
        assert here.lag_ms(here.all[0], SHARD) == 0
        await asyncio.sleep(0.3)
        a.say(shards={SHARD: msgspec.structs.replace(FOLLOWS, last_sequence=90)})
        await here.look_around()
        assert 300 <= here.lag_ms(here.all[0], SHARD) < 400
        a.say(shards={SHARD: FOLLOWS})
        await here.look_around()
        assert here.lag_ms(here.all[0], SHARD) == 0

    simulated(run())
