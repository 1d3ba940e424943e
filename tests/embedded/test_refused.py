"""Who was told no is in the journal for whoever reads it, over every wire and in the file."""

import sqlite3
from pathlib import Path

import pytest

import omnirelay
from omnirelay import QueueOptions, StaleToken
from tests.embedded.places import EVERYWHERE, Place
from tests.embedded.signals import committed, kinds

AT_ONCE = QueueOptions(requeue_delay_ms=0, refusals_every_ms=0)


@pytest.mark.places(*EVERYWHERE)
async def test_a_completion_that_came_too_late_is_told_with_the_next_event(place: Place) -> None:
    async with place.connect(options=AT_ONCE, peer_id="worker-1") as relay:
        await relay.enqueue("table", "orders")
        lease = await relay.lease()
        await lease.release()
        for _ in range(2):
            with pytest.raises(StaleToken):
                await lease.complete()
        assert (await kinds(relay))[-1] == "Released", "nothing is written for it alone"
        await relay.enqueue("table", "lines")
        refused = await committed(relay, "Refused")
        assert (await kinds(relay))[-2:] == ["Enqueue", "Refused"]
        assert (refused.sequence_id, refused.attempt) == (1, 1)
        assert refused.ownership is not None
        assert refused.ownership.lease_id == lease.token.lease_id
        assert refused.principal == "anonymous"
        assert refused.error is not None
        assert refused.error.code == "error.taskqueue.lease_inactive"
        assert refused.metadata["verb"] == "complete"
        assert refused.metadata["times"] == "2"
        async with relay.lease() as again:
            assert again.sequence_id == 1, "the queue goes on as if nothing had been asked"


def test_a_reader_of_the_file_finds_the_refusal_among_the_events(tmp_path: Path) -> None:
    file = tmp_path / "leases.db"
    with omnirelay.connect_sync(f"sqlite:///{file}", options=AT_ONCE) as relay:
        relay.enqueue("table", "orders")
        (lease,) = relay.lease_many(1)
        lease.release()
        with pytest.raises(StaleToken):
            lease.complete()
        relay.enqueue("table", "lines")
    journal = sqlite3.connect(f"file:{file}?mode=ro", uri=True)
    rows = journal.execute(
        "SELECT sequence_number, event_type, sequence_id, attempt, lease_id, principal"
        " FROM lease_events ORDER BY sequence_number DESC LIMIT 1"
    ).fetchall()
    journal.close()
    assert rows == [(6, "Refused", 1, 1, lease.token.lease_id, "anonymous")]
