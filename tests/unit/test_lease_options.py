"""Options that cannot work are refused when a queue is built, by name and with their bounds."""

from typing import Any

import pytest

from omnirelay.lease.options import QueueOptions, SerializeBy
from omnirelay.model.errors import InvalidOption


def test_the_defaults_work() -> None:
    options = QueueOptions()
    assert options.rules().pending_high == 0
    assert options.heartbeat_ms(options.lease_duration_ms) == options.lease_duration_ms // 3


@pytest.mark.parametrize(
    "wrong",
    [
        {"capacity": 0},
        {"capacity": 10_000_001},
        {"capacity": 5.5},
        {"capacity": "many"},
        {"lease_duration_ms": 99},
        {"lease_duration_ms": 24 * 3600 * 1000 + 1},
        {"heartbeat_interval_ms": 0},
        {"heartbeat_interval_ms": 501, "lease_duration_ms": 1000},
        {"sweep_interval_ms": -1},
        {"max_attempts": 0},
        {"requeue_delay_ms": -1},
        {"requeue_delay_max_ms": -1},
        {"requeue_backoff": 0.99},
        {"requeue_backoff": 10.01},
        {"requeue_backoff": float("nan")},
        {"requeue_jitter": -0.1},
        {"requeue_jitter": 0.91},
        {"serialize_by": "shard"},
        {"pending_low": 1},
        {"pending_high": 0},
        {"pending_high": 11, "capacity": 10},
        {"pending_low": 5, "pending_high": 5},
        {"pending_low": -1, "pending_high": 5},
        {"enqueue_wait_ms": -1},
        {"dedupe_window_ms": -1},
        {"dedupe_entries": 0},
        {"finished_entries": 0},
    ],
    ids=str,
)
def test_an_option_that_cannot_work_is_refused_by_name(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidOption, match=next(iter(wrong))) as refused:
        QueueOptions(**wrong)
    assert refused.value.code == "error.invalid_option"


@pytest.mark.parametrize(
    "right",
    [
        {"capacity": 1},
        {"lease_duration_ms": 100, "heartbeat_interval_ms": 50},
        {"requeue_backoff": 1.0, "requeue_jitter": 0.9},
        {"pending_high": 10, "capacity": 10},
        {"pending_high": 1, "pending_low": 0},
        {"dedupe_window_ms": 0},
    ],
    ids=str,
)
def test_an_option_at_its_bound_is_taken(right: dict[str, Any]) -> None:
    QueueOptions(**right)


def test_the_low_mark_is_half_the_high_one_unless_set() -> None:
    assert QueueOptions(pending_high=9).rules().pending_low == 4
    assert QueueOptions(pending_high=9, pending_low=0).rules().pending_low == 0


def test_the_rules_carry_what_a_replay_needs() -> None:
    rules = QueueOptions(serialize_by=SerializeBy.RESOURCE, dedupe_entries=3).rules()
    assert rules.serialize_by == SerializeBy.RESOURCE
    assert rules.dedupe_entries == 3


@pytest.mark.parametrize(
    ("interval", "lease", "told"),
    [(None, 30_000, 10_000), (None, 100, 33), (5_000, 30_000, 5_000), (5_000, 1_000, 500)],
)
def test_workers_are_told_to_beat_well_within_their_lease(
    interval: int | None, lease: int, told: int
) -> None:
    options = QueueOptions(heartbeat_interval_ms=interval)
    assert options.heartbeat_ms(lease) == told
