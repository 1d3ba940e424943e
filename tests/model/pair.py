"""One queue twice: the real core and the naive one, asked the same and held to the same answer."""

from collections import Counter
from typing import TYPE_CHECKING

import msgspec

from omnirelay.lease import answers, commands, image, records
from omnirelay.lease.evolve import evolve
from omnirelay.lease.invariants import violations
from omnirelay.lease.options import QueueOptions, SerializeBy
from omnirelay.model.errors import OmniRelayError, StaleToken
from omnirelay.model.items import PendingItem, Token, to_ms
from omnirelay.testing.folded import FoldedQueue, every_fact
from tests.model.naive import Hold, NaiveQueue, Settings, Thing

if TYPE_CHECKING:
    from omnirelay.lease.state import QueueState

File = tuple[PendingItem, ...]


class Pair:
    """Every method plays one command at `now` on both and asserts that they agree."""

    def __init__(self, name: str, options: QueueOptions, outcomes: Counter[str]) -> None:
        self.name = name
        self.core = FoldedQueue(name, options)
        rules = options.rules()
        settings = Settings(
            serialize_by=options.serialize_by,
            capacity=options.capacity,
            high=rules.pending_high,
            low=rules.pending_low,
            attempts=options.max_attempts,
            window=options.dedupe_window_ms,
            entries=options.dedupe_entries,
            backoff=options.requeue_delay_ms,
            backoff_max=options.requeue_delay_max_ms,
        )
        self.model = NaiveQueue(name, settings)
        self.outcomes = outcomes
        self.is_pure_fold = True
        self.followers: list[tuple[QueueState, int]] = []

    def ask(self, command: commands.Command, now: int) -> tuple[object, list[records.Record]]:
        """What the core answers, refusals by name, and the records it made."""
        length = len(self.core.journal)
        self.model.ripen(now)
        try:
            told: object = self.core.submit(command, now)[1]
        except OmniRelayError as refused:
            told = named(refused)
        new = [record for _, record in self.core.journal[length:]]
        if new:
            self.model.at = now
        return told, new

    def agree(self, expected: object, told: object) -> None:
        assert told == expected, f"{self.name}: {told}, should be {expected}"
        word = expected[0] if isinstance(expected, tuple) else str(expected).split()[0]
        self.outcomes[str(word)] += 1

    # -- commands -----------------------------------------------------------------------------

    def enqueue(self, order: commands.Enqueue, now: int) -> None:
        told, _ = self.ask(order, now)
        if isinstance(told, answers.Accepted):
            told = ("duplicate" if told.duplicate else "enqueued", told.sequence_id)
        thing = Thing(
            id=0,
            kind=order.payload.resource_type,
            name=order.payload.resource_id,
            partition=order.payload.partition_key,
            request=order.payload.request_id,
            priority=order.priority,
            available=now + order.delay_ms if order.delay_ms else 0,
            attempts_max=order.max_attempts or 0,
            lease_ms=order.lease_duration_ms or 0,
            origin=self.name,
        )
        self.agree(self.model.enqueue(thing, now), told)

    def lease(self, command: commands.Grant, now: int) -> Token | None:
        told, _ = self.ask(command, now)
        model, by, request = self.model, command.principal, command.request_id
        before = model.asked_before(request, by, now) if request is not None else None
        if before is not None:
            if isinstance(told, tuple):
                told = ("again", [(one.sequence_id, one.fence) for one in told])
            self.agree(before, told.partition(" ")[0] if isinstance(told, str) else told)
            return None
        thing = model.first(command.resource_types)
        if thing is None:
            self.agree(None, told)
            return None
        assert isinstance(told, tuple)
        (granted,) = told
        token: Token = granted.token
        default = self.core.options.lease_duration_ms
        lease_ms = command.lease_duration_ms or thing.lease_ms or default
        until = now + lease_ms
        expected = ("granted", thing.id, thing.attempt, until, command.lease_id)
        got = (
            "granted",
            token.sequence_id,
            token.attempt,
            to_ms(granted.expires_at),
            token.lease_id,
        )
        self.agree(expected, got)
        assert granted.fence > max((hold.fence for hold in model.held), default=0)
        assert granted.fence > (thing.fence or 0)
        hold = Hold(thing, command.lease_id, granted.fence, until, by, lease_ms, request)
        model.grant(thing, hold, now)
        return token

    def heartbeat(self, token: Token, by: str, now: int) -> None:
        told, _ = self.ask(commands.Heartbeat(tokens=(token,), principal=by), now)
        assert isinstance(told, answers.Beats)
        beat = told.outcomes[0]
        got = ("until", beat.expires_at) if isinstance(beat, answers.Beat) else named(beat)
        self.agree(self.model.heartbeat(plain(token), by, now), got)

    def complete(self, token: Token, by: str, now: int) -> None:
        told, new = self.ask(commands.Complete(token=token, principal=by), now)
        if isinstance(told, answers.Done):
            told = "completed" if new else "again"
        self.agree(self.model.complete(plain(token), by, now), told)

    def fail(self, command: commands.Fail, now: int) -> None:
        told, new = self.ask(command, now)
        if isinstance(told, answers.Returned):
            told = returned(new[0])
        token, by, delay = plain(command.token), command.principal, command.delay_ms
        self.agree(self.model.fail(token, by, now, delay, command.requeue), told)

    def release(self, token: Token, by: str, now: int) -> None:
        told, _ = self.ask(commands.Release(token=token, principal=by), now)
        if isinstance(told, answers.Done):
            told = "released"
        self.agree(self.model.release(plain(token), by, now), told)

    def expire(self, now: int) -> None:
        _, new = self.ask(commands.Expire(limit=100), now)
        assert [returned(record) for record in new] == self.model.expire(now)
        self.outcomes["expired"] += len(new)

    def drain(self, command: commands.Drain, now: int) -> File:
        told, _ = self.ask(command, now)
        assert isinstance(told, answers.DrainPage)
        model = self.model
        page = [item.sequence_id for item in told.items]
        held = [hold.thing.id for hold in model.held]
        expected: list[list[int] | set[int]] = [
            [thing.id for thing in model.order()],
            {thing.id for thing in model.parked},
            [t.id for t in sorted(model.delayed, key=lambda t: (t.available, t.id))],
            held if command.include_active else [],
            [thing.id for thing in model.dead] if command.include_dead else [],
        ]
        assert_page(page, expected, command.max_items)
        for item in told.items:
            was = model.by_id(item.sequence_id)
            assert item.attempt == was.attempt + (was.id in held)
            assert (item.last_error is not None) == was.failed
        model.drain(page)
        stored = msgspec.json.encode(told.items)
        return msgspec.json.decode(stored, type=File)

    def restore(self, file: File, now: int) -> None:
        told, new = self.ask(commands.Restore(items=file), now)
        if isinstance(told, answers.RestoreCount):
            told = [i.sequence_id for r in new if isinstance(r, records.Restored) for i in r.items]
            self.outcomes["restored"] += len(told)
        things = [(thing_of_file(item), item.dead_letter) for item in file]
        expected = self.model.restore(things, now)
        assert told == expected
        if isinstance(expected, str):
            self.outcomes[expected] += 1

    def redrive(self, ids: tuple[int, ...], now: int) -> None:
        told, _ = self.ask(commands.Redrive(max_items=9, sequence_ids=ids), now)
        expected = self.model.redrive(list(ids), now)
        assert told == (expected if isinstance(expected, str) else answers.Count(len(ids)))
        self.outcomes["redriven"] += 1

    def purge(self, ids: tuple[int, ...], now: int) -> None:
        told, _ = self.ask(commands.Purge(max_items=9, sequence_ids=ids), now)
        self.model.dead = [thing for thing in self.model.dead if thing.id not in ids]
        assert told == answers.Count(len(ids))

    # -- crashes and onlookers ----------------------------------------------------------------

    def restart(self, now: int) -> None:
        """From the journal alone, if that is all that has made the line, else from a snapshot."""
        if self.is_pure_fold:
            self.core.refold()
        else:
            self.snapshot(now)
        self.core.start_epoch(now)
        model = self.model
        model.at = now
        model.ripen(now)
        for hold in model.held:
            hold.until = now + hold.lease_ms
        model.watch()

    def restart_otherwise(self, now: int) -> None:
        """An operator changes what is kept apart: whoever holds something goes on holding it, and
        everybody else lines up anew."""
        kinds = list(SerializeBy)
        other = kinds[(kinds.index(self.core.options.serialize_by) + 1) % len(kinds)]
        self.core.options = msgspec.structs.replace(self.core.options, serialize_by=other)
        self.restart(now)
        self.model.settings.serialize_by = other
        self.model.line_up_anew(now)
        self.is_pure_fold = True

    def snapshot(self, now: int) -> None:
        self.core.through_snapshot()
        self.model.line_up_anew(self.model.at)
        self.is_pure_fold = False

    def fold_again(self, now: int) -> None:
        """Not only the facts: the line too is what the records make it, if nothing but records
        has made it."""
        if self.is_pure_fold:
            self.core.refold()
            self.look(now)

    def follow(self, now: int) -> None:
        """A reader takes a snapshot now, and from now on the records."""
        state = image.thaw(image.freeze(self.core.state, 3))
        self.followers = [*self.followers[-1:], (state, len(self.core.journal))]

    def look(self, now: int) -> None:
        told, _ = self.ask(commands.ReadStats(), now)
        assert isinstance(told, answers.Stats)
        model = self.model
        got = (told.pending_count, told.delayed_count, told.active_lease_count)
        assert got == (len(model.arrivals), len(model.delayed), len(model.held))
        assert (told.dead_letter_count, told.backpressure) == (len(model.dead), model.paused)
        assert [i.sequence_id for i in self.core.state.lanes] == [t.id for t in model.order()]

    def check_facts(self) -> None:
        state, model, name = self.core.state, self.model, self.name
        assert [thing_of(item, name) for item in state.pending.values()] == model.arrivals
        assert [thing_of(dead.item, name) for dead in state.dead.values()] == model.dead
        held = [(thing_of(h.item, name), h.fence, h.expires_at) for h in state.active.values()]
        assert held == [(hold.thing, hold.fence, hold.until) for hold in model.held]
        assert state.paused == model.paused
        assert {i for low, high in state.drained for i in range(low, high + 1)} == model.gone
        assert [(i, lease) for _, i, lease in state.finished.items()] == model.finished
        assert list(state.requests.items()) == model.requests

    def check_followers(self) -> None:
        journal = self.core.journal
        for place, (state, read) in enumerate(self.followers):
            for at, record in journal[read:]:
                evolve(state, record, at)
                assert violations(state) == []
            self.followers[place] = (state, len(journal))
            assert every_fact(state) == every_fact(self.core.state)


# -- the core's words in the model's ------------------------------------------------------------


def named(refused: object) -> str:
    if isinstance(refused, StaleToken):
        return f"StaleToken {refused.current_fence}"
    return type(refused).__name__


def returned(record: records.Record) -> object:
    assert isinstance(record, records.Failed | records.Expired)
    if record.disposition == records.DEAD_LETTERED:
        return ("dead", record.sequence_id)
    available = record.available_at if isinstance(record, records.Failed) else 0
    return ("requeued", record.sequence_id, available)


def plain(token: Token) -> tuple[int, str, int]:
    assert token.fence is not None
    return (token.sequence_id, token.lease_id, token.fence)


def thing_of(item: records.Item, origin: str) -> Thing:
    payload = item.payload
    return Thing(
        id=item.sequence_id,
        kind=payload.resource_type,
        name=payload.resource_id,
        partition=payload.partition_key,
        request=payload.request_id,
        priority=item.priority,
        available=item.available_at,
        attempts_max=item.max_attempts,
        lease_ms=item.lease_ms,
        origin=item.origin or origin,
        attempt=item.attempt,
        failed=item.last_error is not None,
        fence=item.last_token.fence if item.last_token is not None else None,
    )


def thing_of_file(item: PendingItem) -> Thing:
    payload, token = item.payload, item.last_ownership_token
    return Thing(
        id=item.sequence_id,
        kind=payload.resource_type,
        name=payload.resource_id,
        partition=payload.partition_key,
        request=payload.request_id,
        priority=item.priority,
        available=to_ms(item.available_at) if item.available_at is not None else 0,
        attempts_max=item.max_attempts or 0,
        lease_ms=item.lease_duration_ms or 0,
        origin=item.origin or "",
        attempt=item.attempt,
        failed=item.last_error is not None,
        fence=token.fence if token is not None else None,
    )


def assert_page(page: list[int], expected: list[list[int] | set[int]], most: int) -> None:
    """The page takes these one after another, where a set says that any order will do."""
    assert len(page) == min(most, sum(len(group) for group in expected))
    for group in expected:
        part, page = page[: len(group)], page[len(group) :]
        if isinstance(group, set):
            assert set(part) <= group
        else:
            assert part == group[: len(part)]
