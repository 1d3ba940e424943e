"""Each way a lease and an item can end, told by hand and read back from the tables."""

from typing import Any

import pytest

from omnirelay.lease.commands import (
    Complete,
    Drain,
    Enqueue,
    Expire,
    Fail,
    Grant,
    Heartbeat,
    Purge,
    Redrive,
    Release,
    Restore,
)
from omnirelay.lease.options import QueueOptions
from omnirelay.model.items import Payload, PendingItem, Token
from omnirelay.testing.folded import FoldedQueue, numbered_lease_id
from tests.spark.duck_tables import TablesInDuckDB
from tests.spark.histories import enveloped

Row = dict[str, Any]  # Any: one row of mixed columns
T0 = 1_750_000_000_000
S = 1_000


class Story:
    """One item of one queue, moved by hand; times are seconds since T0."""

    def __init__(self, **options: Any) -> None:
        self.queue = FoldedQueue("s", QueueOptions(lease_duration_ms=20 * S, **options))
        self.token = Token(0, 0, "")
        self.file: tuple[PendingItem, ...] = ()

    def do(self, second: int, command: Any) -> "Story":
        records, reply = self.queue.submit(command, T0 + second * S)
        assert records, "a story's commands all have an effect"
        if isinstance(command, Grant):
            assert isinstance(reply, tuple)
            self.token = reply[0].token
        self.file = getattr(reply, "items", self.file)
        return self

    def enqueue(self, second: int = 0, **more: Any) -> "Story":
        payload = Payload("table", "sales", partition_key="eu", attributes=more.pop("named", None))
        return self.do(second, Enqueue(payload=payload, principal="maker", **more))

    def grant(self, second: int, number: int = 1) -> "Story":
        lease_id = numbered_lease_id(number)
        return self.do(second, Grant(lease_id=lease_id, principal="ann", peer_id="p1"))

    def rows(self, table: str) -> list[Row]:
        tables = TablesInDuckDB()
        tables.advance(enveloped("s", self.queue.journal))
        return tables.rows(table)

    def attempt(self, fence: int | None = None) -> Row:
        """The lease with this fence, or the only one."""
        found = [row for row in self.rows("lease_attempts") if row["fence"] is not None]
        (row,) = [row for row in found if fence in (None, row["fence"])]
        return row

    def item(self) -> Row:
        (row,) = self.rows("items")
        return row


def held() -> Story:
    return Story(max_attempts=2, requeue_delay_ms=0).enqueue(1).grant(5)


def has(row: Row, **expected: object) -> None:
    assert {name: row[name] for name in expected} == expected


def test_a_completed_lease_ends_its_item() -> None:
    story = held()
    story.do(9, Complete(token=story.token, principal="ann"))
    has(
        story.attempt(),
        outcome="completed",
        queued_at=T0 + 1 * S,
        wait_ms=4 * S,
        hold_ms=4 * S,
        ended_by="ann",
        heartbeats=0,
        disposition=None,
        state="closed",
    )
    has(
        story.item(),
        fate="completed",
        attempts=1,
        total_ms=8 * S,
        state="closed",
        arrived="enqueue",
    )


def test_an_open_lease_has_no_end_and_its_item_no_fate() -> None:
    story = held()
    story.do(8, Heartbeat(tokens=(story.token,), principal="ann"))
    has(
        story.attempt(),
        outcome=None,
        ended_at=None,
        hold_ms=None,
        heartbeats=1,
        last_heartbeat_at=T0 + 8 * S,
        expires_at=T0 + 28 * S,
        state="open",
    )
    has(story.item(), fate=None, ended_at=None, first_granted_at=T0 + 5 * S, state="open")


def test_a_failed_lease_sends_its_item_back_after_its_delay() -> None:
    story = held()
    fail = Fail(token=story.token, principal="ann", reason="broken", delay_ms=10 * S)
    story.do(9, fail).grant(30, 2)
    has(
        story.attempt(fence=3),
        outcome="failed",
        disposition="requeued",
        error_message="broken",
        hold_ms=4 * S,
    )
    has(story.attempt(fence=5), attempt=2, queued_at=T0 + 19 * S, wait_ms=11 * S)
    has(story.item(), attempts=2, last_error_message="broken", fate=None)


def test_a_failure_for_good_makes_a_dead_letter_that_is_still_open() -> None:
    story = held()
    story.do(9, Fail(token=story.token, principal="ann", requeue=False))
    has(story.attempt(), outcome="failed", disposition="deadLettered")
    has(story.item(), fate="deadLettered", ended_at=T0 + 9 * S, state="open")


def test_an_expired_lease_is_ended_by_nobody_but_its_holder() -> None:
    story = held().do(25, Expire(limit=9))
    has(story.attempt(), outcome="expired", ended_by="ann", hold_ms=20 * S, disposition="requeued")
    (peer,) = story.rows("peer_health")
    has(peer, expired=1, suspected_zombie=True, last_seen_at=T0 + 5 * S)


def test_a_released_lease_leaves_the_attempt_as_it_was() -> None:
    story = held()
    story.do(7, Release(token=story.token, principal="ann")).grant(9, 2)
    has(story.attempt(fence=3), outcome="released", disposition=None, attempt=1)
    has(story.attempt(fence=5), attempt=1, queued_at=T0 + 7 * S, wait_ms=2 * S)


def test_a_drain_ends_the_lease_and_a_restore_begins_a_new_stay() -> None:
    story = held().do(8, Drain(max_items=1, include_active=True, principal="ops"))
    story.do(20, Restore(items=story.file, principal="ops")).grant(22, 2)
    has(story.attempt(fence=3), outcome="drained", ended_by="ops", hold_ms=3 * S)
    has(story.attempt(fence=6), attempt=2, queued_at=T0 + 20 * S, wait_ms=2 * S)
    away, back = sorted(story.rows("items"), key=lambda row: row["enqueued_sequence"])
    has(away, fate="drained", arrived="enqueue", attempts=1, state="closed")
    has(back, fate=None, arrived="restore", attempts=1, enqueued_at=T0 + 1 * S, state="open")
    assert back["first_granted_at"] == T0 + 22 * S


def test_a_redriven_dead_letter_lives_again_with_the_next_attempt() -> None:
    story = held()
    story.do(9, Fail(token=story.token, principal="ann", requeue=False))
    story.do(15, Redrive(max_items=1, principal="ops"))
    (_, waiting) = sorted(story.rows("lease_attempts"), key=lambda row: row["attempt"])
    has(waiting, attempt=2, fence=None, queued_at=T0 + 15 * S, state="open")
    has(story.item(), fate=None, ended_at=None, last_error_message="lease failed")


def test_a_purged_dead_letter_has_come_to_its_end() -> None:
    story = held()
    story.do(9, Fail(token=story.token, principal="ann", requeue=False))
    story.do(15, Purge(max_items=1, principal="ops"))
    has(story.item(), fate="purged", ended_at=T0 + 15 * S, state="closed")
    assert {row["action"] for row in story.rows("principal_activity")} == {
        "Enqueue",
        "LeaseGranted",
        "Failed",
        "Purged",
    }


def test_a_new_epoch_gives_a_holder_its_whole_time_again() -> None:
    story = held()
    story.queue.start_epoch(T0 + 12 * S)
    assert story.attempt()["expires_at"] == T0 + 32 * S
    story.do(13, Complete(token=story.token, principal="ann"))
    assert story.attempt()["expires_at"] == T0 + 32 * S
    first, second = story.rows("epochs")
    has(first, epoch=1, from_sequence=1, until_sequence=3, events=3, state="closed")
    has(second, epoch=2, from_sequence=4, until_sequence=5, events=2, state="open")


def test_a_delayed_item_waits_only_from_when_it_could_be_granted() -> None:
    story = Story().enqueue(1, delay_ms=5 * S).grant(10)
    has(story.attempt(), queued_at=T0 + 6 * S, wait_ms=4 * S)


def test_who_owned_a_resource_is_told_by_fence() -> None:
    story = held()
    story.do(7, Release(token=story.token, principal="ann")).grant(9, 2)
    first, second = sorted(story.rows("resource_ownership"), key=lambda row: row["fence"])
    has(first, resource_id="sales", until_at=T0 + 7 * S, outcome="released", state="closed")
    has(second, from_at=T0 + 9 * S, until_at=None, outcome=None, state="open")


def test_a_completed_attempt_leads_from_its_inputs_to_its_outputs() -> None:
    story = Story()
    names = {"lineage.inputs": "raw:a, raw:b", "lineage.outputs": "lake:c"}
    story.enqueue(1, named=names).grant(2)
    story.do(3, Complete(token=story.token, principal="ann"))
    edges = {(row["source"], row["target"]) for row in story.rows("lineage_edges")}
    assert edges == {("raw:a", "lake:c"), ("raw:b", "lake:c")}


def test_lease_order_tells_who_worked_on_whose_result() -> None:
    story = Story().enqueue(1, named={"lineage.outputs": "lake:c"}).grant(2)
    story.do(3, Complete(token=story.token, principal="ann"))
    reader = Payload("report", "daily", attributes={"lineage.inputs": "lake:c"})
    story.do(4, Enqueue(payload=reader)).grant(5, 2)
    story.do(6, Complete(token=story.token, principal="ann"))
    edges = {(row["source"], row["target"], row["relation"]) for row in story.rows("lineage_edges")}
    assert edges == {
        ("table:sales", "lake:c", "attributes"),
        ("lake:c", "report:daily", "attributes"),
        ("table:sales", "report:daily", "order"),
    }


def test_backpressure_lasts_from_the_high_mark_to_the_low_one() -> None:
    story = Story(pending_high=2, pending_low=0).enqueue(0).enqueue(10)
    story.grant(15, 1).grant(30, 2)
    closed, now = sorted(story.rows("backpressure"), key=lambda row: row["state"])
    has(closed, from_at=T0 + 10 * S, until_at=T0 + 30 * S, pending_high=2, pending_low=0)
    has(now, from_at=None, until_at=T0 + 30 * S, state="open")
    paused = sum(row["backpressure_ms"] for row in story.rows("slo_by_window"))
    assert paused == 20 * S


@pytest.mark.parametrize(("wait_s", "burn"), [(60, 0.0), (61, 100.0)])
def test_a_wait_over_the_objective_burns_the_budget(wait_s: int, burn: float) -> None:
    story = Story().enqueue(0).grant(wait_s)
    story.do(wait_s, Complete(token=story.token, principal="ann"))
    (row,) = [row for row in story.rows("slo_by_window") if row["completed"]]
    assert row["burn"] == pytest.approx(burn)
