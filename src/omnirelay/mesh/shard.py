"""A shard: one state, one journal, one task that turns. Decide, append, then answer.

Calls come in from any thread through `offer`; outcomes go out through each call's `reply`, on the
shard's own thread, after the append that carries them. A failed append ends the term: every caller
of that turn hears what is known, and the shard recovers from the journal and starts a new epoch.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from omnirelay.journal.backend import Durability, JournalBackend
from omnirelay.journal.bell import Bell
from omnirelay.lease.answers import Answer
from omnirelay.lease.state import QueueState
from omnirelay.mesh.ahead import take_turns
from omnirelay.mesh.calls import AnyCall, asked_in, emptied
from omnirelay.mesh.gathering import Gathering
from omnirelay.mesh.hall import Hall
from omnirelay.mesh.keeper import Keeper, Slowest, nobody
from omnirelay.mesh.office import Office, Rank, ReadByAll, first, newest
from omnirelay.mesh.refusal import (
    FINAL,
    answer_rest,
    append_refusal,
    ended,
    nobody_left_waiting,
    not_serving,
    read_only,
    served_elsewhere,
    told_of_bug,
)
from omnirelay.mesh.rest import LoopRest, Rest
from omnirelay.mesh.shard_options import ShardOptions
from omnirelay.mesh.tally import Tally
from omnirelay.mesh.term import Term
from omnirelay.mesh.turn import Turn
from omnirelay.model import limits
from omnirelay.model.errors import (
    Closed,
    Fenced,
    NotOwner,
    OmniRelayError,
    Overloaded,
    SequenceTaken,
)
from omnirelay.model.ports import Clock, Ids, ShardClock

if TYPE_CHECKING:
    from omnirelay.mesh.following import Following

log = logging.getLogger(__name__)

HOLD_S = 0.002
"""In which a caller that was just answered comes back, if it comes back at all."""


class Shard:
    def __init__(
        self,
        backend: JournalBackend,
        options: ShardOptions,
        *,
        clock: Clock,
        ids: Ids,
        slowest: Slowest = nobody,
        rest: Rest | None = None,
        rank: Rank = first,
        read_by_all: ReadByAll = newest,
        on_ready: Callable[[], None] = lambda: None,
        on_trouble: Callable[[OmniRelayError], None] = lambda error: None,
    ) -> None:
        self.name = backend.shard
        self.bell = Bell()
        self.tally = Tally()
        self.state = QueueState()
        self.ready = asyncio.Event()
        self.failure: OmniRelayError | None = None
        """Why the shard does not serve at present."""
        if options.ttl_ms:
            self.failure = served_elsewhere(self.name, self.state, is_caught_up=False)
        self._backend = backend
        self._options = options
        self._clock = clock
        self._time = ShardClock(clock)
        self._slowest = slowest
        self._term: Term | None = None
        self._inbox: deque[AnyCall] = deque()
        self._hall = Hall(options.queue)
        self._gathering = Gathering()
        self._rest = rest or LoopRest()
        self._is_resting = False
        self._rests_until: int | None = None
        self._under_way: deque[Turn] = deque(maxlen=2)
        """Played and not answered yet: one that is being appended and one that was played ahead."""
        self._on_ready = on_ready
        self._on_trouble = on_trouble
        self.is_stopping = self._ended = False
        self._pause_s = options.retry_min_s
        self._yields_until: int | None = None
        self._office = Office(backend, options, clock=clock, ids=ids, rest=self._rest, rank=rank)
        self._office.read_by_all = read_by_all
        self._left: Following | None = None
        """What a term that was handed over left behind."""
        self._is_as_recovered = False
        """The state is what the journal holds, no decision ahead of it."""

    # -- callers, from any thread -------------------------------------------------------------

    def offer(self, call: AnyCall) -> None:
        """Its reply comes later, on the thread that takes its turn. Raises Overloaded or Closed."""
        self.put(call)
        self._wake()

    def put(self, call: AnyCall) -> None:
        """Hand in a call, without waking anybody for it. Raises as `offer` does."""
        if self.is_stopping:
            raise Closed(f"shard {self.name} is closed")
        if len(self._inbox) >= limits.INBOX_MAX:
            raise Overloaded(f"shard {self.name}: {limits.INBOX_MAX} calls are waiting; slow down")
        self._inbox.append(call)
        if self._ended:
            # It ended between our look and the append, so nobody else will answer this call.
            self._refuse_all(ended(self.name, self.failure))

    @property
    def waiting(self) -> int:
        """Calls that nobody has begun."""
        return len(self._inbox)

    @property
    def asked(self) -> int:
        """What those ask for."""
        return asked_in(self._inbox)

    def _wake(self) -> None:
        if self._is_resting:
            self._is_resting = False
            self._rest.wake()

    def turn_away(self, why: OmniRelayError | None) -> None:
        """From now on new work is refused with `why`, and who waits for work is sent away with it;
        what is leased may be finished. None: everybody is welcome again."""
        self._hall.closed = why
        self._rest.wake()

    @property
    def durability(self) -> Durability | None:
        """What the journal states, once it is open."""
        return self._office.durability

    def now_ms(self) -> int:
        return self._time.now_ms()

    def take_over(self, *, is_wanted: bool = True) -> None:
        """Own the shard as soon as its journal has been read to the end, whoever owns it now."""
        self._office.want(is_wanted)

    def stand_aside(self, wait_ms: int) -> None:
        """Write nothing for so long, or until another has begun an epoch; calls wait. 0: go on."""
        self._yields_until = self._time.now_ms() + wait_ms
        self._rest.wake()

    @property
    def is_served_here(self) -> bool:
        return self._term is not None

    @property
    def is_hot(self) -> bool:
        """It serves, or follows the owner closely: it could take over at once."""
        follows = self._is_as_recovered and isinstance(self.failure, NotOwner)
        return self.is_served_here or follows

    @property
    def owner_url(self) -> str:
        """Where the owner takes calls; blank while the journal was not read yet."""
        return self.state.rules.url if self._is_as_recovered else ""

    def serve_at(self, url: str) -> None:
        """From the next epoch on, others find this node there."""
        self._office.url = url

    def stop(self) -> None:
        """Finish what is in hand, then end `run`."""
        self.is_stopping = True
        self._rest.wake()

    # -- the task ---------------------------------------------------------------------------

    async def run(self) -> None:
        """Serve until `stop`, or until a failure that cannot be mended, which is raised."""
        try:
            while not self.is_stopping:
                await self._serve_one_term()
        finally:
            self.is_stopping = self._ended = True
            self._refuse_all(self.failure or ended(self.name, None))
            self.failure = ended(self.name, self.failure)
            await self._backend.close()

    async def _serve_one_term(self) -> None:
        try:
            term = await self._take_office()
            self._pause_s = self._options.retry_min_s
            with nobody_left_waiting(self.name, self._under_way):
                await self._serve(term)
        except OmniRelayError as error:
            self._step_down(error)
            if isinstance(error, FINAL):
                raise
            if self._options.ttl_ms and isinstance(error, Fenced | SequenceTaken):
                return  # another owns it now, and is to be followed
            await self._sleep(self._pause_s)
            self._pause_s = min(self._pause_s * 2, self._options.retry_max_s)

    async def _take_office(self) -> Term:
        """Become the writer: the epoch is in the journal when this returns."""
        left, self._left = self._left, None
        won = await self._office.enter(self, left)
        # Only now: while the epoch could not be written, readers saw what was recovered.
        self._is_as_recovered = False
        keeper = Keeper(self._backend, self._options.keep, self._slowest)
        term = self._term = Term(
            won, self._backend, self._options, keeper=keeper, tally=self.tally, bell=self.bell
        )
        self._time = term.time
        self.failure = None
        self.ready.set()
        self._on_ready()
        log.info("shard %s serves epoch %d", self.name, self.state.epoch)
        return term

    def look_on(self, state: QueueState, *, is_caught_up: bool) -> None:
        """The office has read the journal, and another may own it: calls that wait go there."""
        self.state, self._is_as_recovered = state, True
        if not self._options.ttl_ms:
            return
        self.bell.ring(state.sequence)
        self.failure = served_elsewhere(self.name, state, is_caught_up=is_caught_up)
        self._refuse_all(self.failure)
        if isinstance(self.failure, NotOwner):
            self._on_ready()

    def is_called(self) -> bool:
        """Asked before a rest: from now on a call that comes ends it."""
        self._is_resting = True
        return bool(self._inbox)

    def _step_down(self, error: OmniRelayError) -> None:
        self.ready.clear()
        self._yields_until = None
        self.failure = append_refusal(error) if isinstance(error, Fenced) else error
        self._term = None
        log.warning("shard %s left service: %s", self.name, error.message)
        self._refuse_all(error)
        self._on_trouble(error)

    async def _serve(self, term: Term) -> None:
        keeper = term.keeper
        while True:
            if self._is_yielding():
                self._left = term.left_behind(self._clock)
                await term.stand_aside(lambda: 0 if self.is_stopping else self._yields_until or 0)
                self._yields_until = self._left = None
            if not self._inbox and not self._is_due(term):
                if self.is_stopping:
                    return
                if keeper.is_busy:
                    await keeper.step(term.time.now_ms())
                    await self._rest.breathe()
                    continue
                await self._wait_for_calls(term)
                continue
            if self._rest.suspends:
                await self._gather()
                play = partial(self._played, term)
                await take_turns(term, self._inbox, play, is_held=self._is_yielding)
            else:
                await term.commit(self._played(term))
            self._under_way.clear()
            if keeper.is_busy:
                await keeper.step(term.time.now_ms())

    async def _gather(self) -> None:
        """Now and then callers that have fallen out of step are waited for."""
        loop, had = asyncio.get_running_loop(), len(self._inbox)
        if not had or not self._gathering.is_wanted(self.asked, loop.time()):
            return
        until = loop.time() + HOLD_S
        while len(self._inbox) == had and (left := until - loop.time()) > 0:
            self._is_resting = True
            await self._rest.wait(left)
            self._is_resting = False

    def _is_yielding(self) -> bool:
        return self._yields_until is not None

    def _played(self, term: Term) -> Turn:
        turn = term.turn()
        self._play_or_give_up(term, turn, [])
        self._under_way.append(turn)
        return turn

    def _play_or_give_up(self, term: Term, turn: Turn, calls: list[AnyCall]) -> None:
        """A bug leaves no caller without an answer: nothing was changed, as recovery makes true."""
        try:
            self._hall.play(turn, self._inbox, calls)
            term.affirm(turn)
            term.tell(turn)
        except Exception as bug:
            raise told_of_bug(self.name, bug, turn.concerned(calls), self._refuse_all) from bug

    # -- waiting ------------------------------------------------------------------------------

    def _is_due(self, term: Term) -> bool:
        at = term.next_at(self._hall)
        return at is not None and at <= term.time.now_ms()

    async def _wait_for_calls(self, term: Term) -> None:
        """Sleep until a call comes in or something is due."""
        at = self._rests_until = term.next_at(self._hall)
        timeout_s = None if at is None else max(0, at - term.time.now_ms()) / 1000
        self._is_resting = True
        if not self._inbox and not self.is_stopping:  # nothing came between the last look and now
            await self._lie_down(timeout_s)
        self._is_resting = False

    async def _lie_down(self, timeout_s: float | None) -> None:
        await self._rest.wait(timeout_s)

    async def _sleep(self, seconds: float) -> None:
        """Pause between two attempts to take office; reads are answered meanwhile."""
        until = self._clock.monotonic_ms() + round(seconds * 1000)
        while not self.is_stopping and (left := until - self._clock.monotonic_ms()) > 0:
            self._is_resting = True
            if not self._inbox:
                await self._rest.wait(left / 1000)
            self._is_resting = False
            assert self.failure is not None
            self._refuse_all(self.failure)

    # -- saying no ----------------------------------------------------------------------------

    def _refuse_all(self, error: OmniRelayError) -> Sequence[AnyCall]:
        waiting = [*self._hall.clear(), *emptied(self._inbox)]
        refusal = not_serving(self.name, error)
        for call in waiting:
            answer_rest(call, refusal, self._read)
        return waiting

    def _read(self, command: object) -> Answer | None:
        """From what was recovered, though nothing can be written; with rivals the owner alone."""
        is_known = self._is_as_recovered and self.state.sequence > 0 and self._options.tells
        if isinstance(self.failure, FINAL) or not is_known:
            return None
        return read_only(self.state, command, self._time.now_ms(), self._options.queue)
