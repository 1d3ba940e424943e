"""What an earlier version stored is read by this one, and means the same.

One pair of fixtures for each version of the format, written once and never again: an envelope with
every kind of record, and a journal of three envelopes with a snapshot after the second. Of each
later record format (docs/adr/0014) an envelope, or the parts of a snapshot, with what it added.
"""

import json
import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest

from omnirelay.journal.events import events_of
from omnirelay.journal.format import Envelope, unseal
from omnirelay.lease.image import Part, facts, freeze, thaw
from omnirelay.lease.invariants import violations
from omnirelay.lease.options import SerializeBy
from omnirelay.lease.records import Enqueued, Followed, Record, Refused
from omnirelay.lease.state import QueueState
from omnirelay.mesh.recovery import recover, replay
from omnirelay.model.items import ErrorInfo, Payload, Token
from omnirelay.stores.sqlite import SqliteJournal
from omnirelay.testing.clock import HandClock
from omnirelay.testing.envelopes import scan
from tests.unit.served import serving

FIXTURES = Path(__file__).parents[1] / "fixtures"
SHARD = "resourcelease"
START = 1_700_000_000_000
HOME = "11111111-1111-4111-8111-111111111111"
AWAY = "22222222-2222-4222-8222-222222222222"


def lease_id(number: int) -> str:
    return f"{number:08}-0000-4000-8000-{number:012}"


def envelope_v1() -> Envelope:
    return unseal((FIXTURES / "envelope-v1.json").read_bytes().strip(), shard=SHARD, at=1)


def envelope_format2() -> Envelope:
    return unseal((FIXTURES / "envelope-format2.json").read_bytes().strip(), shard=SHARD, at=1)


def test_the_fixtures_have_every_kind_of_record() -> None:
    envelope, second = envelope_v1(), envelope_format2()
    kinds = {type(record) for record in envelope.records}
    assert kinds == set(Record.__args__) - {Refused, Followed}
    assert {type(record) for record in second.records} - kinds == {Refused, Followed}
    assert (envelope.v, envelope.first, envelope.last) == (1, 1, 21)
    assert len(list(events_of(envelope))) == 21


def test_the_second_format_s_records_mean_what_they_did() -> None:
    envelope, state = envelope_format2(), QueueState()
    replay(state, envelope)
    assert violations(state) == []
    assert (state.sequence, state.rules.format) == (8, 2)
    assert (sorted(state.pending), sorted(state.active)) == ([1], [])
    assert list(envelope.records[-3:]) == [
        Refused(
            *("complete", "error.taskqueue.lease_inactive", 3, 1, 1, lease_id(1)),
            *(None, "bob", "digest-1"),
        ),
        Refused("enqueue", "error.resourcelease.capacity", 1, peer_id="producer-1"),
        Followed("lakehouse", 5, 2, 1_500),
    ]


def test_the_third_format_s_snapshots_mean_what_they_did() -> None:
    stored = (FIXTURES / "snapshot-format3.json").read_bytes().strip()
    parts = msgspec.json.decode(stored, type=list[Part])
    state = thaw(parts)
    assert (state.sequence, state.last_id, state.rules.format) == (40, 14, 3)
    assert state.requests.items() == [
        (START, "request-a", 1),
        *((START + 1, f"client-1.{5 + index}", 2 + index) for index in range(3)),
        (START + 9, "client-1.9", 14),
    ]
    assert state.lease_requests.items() == [(START + 2, "lease-1", [1, 2, 3, 7])]
    assert state.finished.items() == [(START + 3, number, lease_id(number)) for number in (1, 3, 2)]
    assert [msgspec.json.encode(part) for part in freeze(state, 100)] == [
        msgspec.json.encode(part) for part in parts
    ], "and are still written so"


def test_the_first_version_s_records_mean_what_they_did() -> None:
    state = QueueState()
    replay(state, envelope_v1())
    assert violations(state) == []
    assert (state.sequence, state.at, state.epoch, state.node) == (21, START, 1, "node-a")
    assert state.origin == HOME
    assert (state.rules.pending_high, state.rules.finished_entries) == (100, 500)
    assert (sorted(state.pending), sorted(state.active), sorted(state.dead)) == ([2, 9], [4], [7])
    assert (state.last_id, list(state.gaps), list(state.drained)) == (9, [(5, 6), (8, 8)], [])
    assert {origin: list(ids) for origin, ids in state.adopted.items()} == {AWAY: [(7, 7), (9, 9)]}
    assert state.fence_offset == 80
    assert list(state.finished.items()) == [(START, 1, lease_id(1))]
    assert list(state.requests.items()) == [(START, "request-1", 1), (START, "request-9", 9)]
    assert list(state.lease_requests.items()) == [(START, "lease-request-1", [1])]


def test_the_first_version_s_items_kept_all_their_fields() -> None:
    state = QueueState()
    replay(state, envelope_v1())
    failed, moved, held, dead = state.pending[2], state.pending[9], state.active[4], state.dead[7]
    assert (failed.attempt, failed.available_at) == (2, START + 200)
    assert failed.last_error == ErrorInfo("disk is full", "E28")
    assert failed.last_token == Token(2, 1, lease_id(2), 8)
    assert moved.payload == Payload("queue", "emails", request_id="request-9")
    assert (moved.priority, moved.max_attempts, moved.lease_ms) == (3, 4, 15_000)
    assert (moved.last_error, moved.origin) == (ErrorInfo("smtp"), AWAY)
    assert (held.fence, held.lease_id, held.item.priority) == (101, lease_id(6), -2)
    assert held.item.payload == Payload("file", "c.parquet", partition_key="eu")
    assert (dead.item.attempt, dead.item.last_error) == (5, ErrorInfo("gone", "E410"))


def test_the_first_version_s_payload_came_through_whole() -> None:
    enqueued = envelope_v1().records[1]
    assert isinstance(enqueued, Enqueued)
    assert enqueued.payload == Payload(
        "table",
        "sales.orders",
        "eu",
        "application/json",
        b'{"rows":3}',
        {"owner": "ann", "note": 'a "quoted" \u2603'},
        "request-1",
    )


@pytest.fixture
def journal_v1(tmp_path: Path) -> SqliteJournal:
    path = tmp_path / "journal.db"
    shutil.copy(FIXTURES / "journal-v1.db", path)
    return SqliteJournal(str(path), SHARD)


async def test_the_first_version_s_journal_opens_and_recovers_to_the_state_it_had(
    journal_v1: SqliteJournal,
) -> None:
    await journal_v1.open()
    found = await recover(journal_v1)
    state = found.state
    folded = QueueState()
    for envelope in await scan(journal_v1, SHARD):
        replay(folded, envelope)
    await journal_v1.close()
    assert (found.snapshot_sequence, found.records) == (23, 2), "the snapshot was used"
    assert facts(state) == facts(folded)
    assert violations(state) == []
    assert (state.sequence, state.epoch, state.node, state.origin) == (25, 2, "node-b", HOME)
    assert state.rules.serialize_by == SerializeBy.RESOURCE
    assert (sorted(state.pending), sorted(state.active), sorted(state.dead)) == ([2, 9], [4], [7])
    assert state.active[4].expires_at == START + 3_600_000 + 30_000, "a new epoch, a whole lease"
    assert [key for _, key, _ in state.finished.items()] == [1, 10]
    assert state.next_fence() == 106


async def test_the_first_version_s_journal_goes_on_under_this_program(
    journal_v1: SqliteJournal,
) -> None:
    async with serving(journal_v1, clock=HandClock(START + 7_200_000)) as served:
        tokens = await served.lease(2)
        assert [(token.sequence_id, token.fence) for token in tokens] == [(9, 107), (2, 108)]


def test_a_snapshot_s_members_are_named_as_they_were() -> None:
    """The state of the first fixture, in the words a snapshot of version 1 uses."""
    state = QueueState()
    replay(state, envelope_v1())
    parts: list[dict[str, Any]] = json.loads(facts(state))
    assert [set(part) for part in parts] == [
        {"base"},
        {"pending"},
        {"active"},
        {"dead"},
        {"requests"},
        {"leaseRequests"},
        {"finished"},
    ]
    assert set(parts[0]["base"]) == {
        *("sequence", "at", "epoch", "node", "origin", "rules", "lastId", "fenceOffset"),
        *("gaps", "adopted"),
    }
