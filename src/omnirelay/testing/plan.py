"""What one seed switches on. Swarm style: most seeds lack most things, so that each fault is also
met without the others and none hides another."""

from dataclasses import dataclass
from random import Random

from omnirelay.lease.options import QueueOptions, SerializeBy
from omnirelay.mesh.keeper import KeepOptions
from omnirelay.testing.disk import LATE, LOST, UNCONFIRMED

MISHAPS = (UNCONFIRMED, LOST, LATE)
"""Appends that end without a plain yes or no, by chance."""

BLOWS = ("kill", "power_cut", "stop", "usurper", "slow_disk", "disk_full", "wall_jump")
"""What the nemesis does at moments it chooses."""

NUISANCES = (
    "crash_point",
    "lost_message",
    "slow_message",
    "double_message",
    "sink_fails",
    "follower_restart",
)
"""What lies in wait at every step."""

FAULTS = (*MISHAPS, *BLOWS, *NUISANCES)

HABITS = (
    "batch_enqueue",
    "delay",
    "priority",
    "own_limits",
    "no_request_id",
    "partition_key",
    "batch_lease",
    "by_type",
    "lease_request_id",
    "heartbeat",
    "stall",
    "abandon",
    "fail",
    "dead_letter",
    "release",
    "withdraw",
    "imposter",
    "drain",
    "drain_all",
    "restore",
    "immigrate",
    "redrive",
    "purge",
    "read",
    "new_options",
)
"""What producers, workers and operators are given to."""

_SMALL = {
    # More than there are workers: the heartbeats of a turn come first and must leave room.
    "ENVELOPE_RECORDS_MAX": 6,
    "TURN_COMMANDS_MAX": 2,
    "INBOX_MAX": 3,
    "WAITERS_MAX": 1,
    "PAGE_BYTES_MAX": 1000,
    "READ_ENVELOPES_MAX": 2,
    "SNAPSHOT_PART_ITEMS_MAX": 2,
    "PRUNE_ENVELOPES_MAX": 3,
    "SINK_BATCH_EVENTS_MAX": 2,
    "AHEAD_COMMANDS_MIN": 1,
}


@dataclass(frozen=True, slots=True)
class Plan:
    seed: int
    faults: frozenset[str]
    habits: frozenset[str]
    queue: QueueOptions
    keep: KeepOptions
    limits: dict[str, int]
    """Bounds of `model.limits` that are drawn close, so that a small world meets them."""
    producers: int
    workers: int
    items: int
    """Items each producer hands in."""
    resources: int
    storm_s: float
    """How long faults last. Then all is calm and everything must come to an end."""
    latency_s: tuple[float, float]

    def __str__(self) -> str:
        faults = ", ".join(sorted(self.faults)) or "none"
        return f"seed {self.seed}: faults {faults}; habits {', '.join(sorted(self.habits))}"


def draw_plan(seed: int) -> Plan:
    # Not the loop's own generator: the plan must not change with the number of draws in a run.
    chance = Random(seed * 2_654_435_761 + 1)
    fault_share = chance.choice((0.1, 0.25, 0.5))
    habit_share = chance.choice((0.3, 0.5, 0.8))
    return Plan(
        seed=seed,
        faults=frozenset(name for name in FAULTS if chance.random() < fault_share),
        habits=frozenset(name for name in HABITS if chance.random() < habit_share),
        queue=draw_queue(chance),
        keep=KeepOptions(
            snapshot_every=chance.choice((8, 20, 60, 100_000)),
            retain_ms=chance.choice((0, 300, 3_000, 3_600_000)),
        ),
        limits={name: small for name, small in _SMALL.items() if chance.random() < 0.2},
        producers=chance.randint(1, 3),
        workers=chance.randint(1, 4),
        items=chance.randint(4, 9),
        resources=chance.randint(1, 5),
        storm_s=chance.uniform(0.8, 2.4),
        latency_s=chance.choice(((0.0, 0.0), (0.001, 0.01), (0.005, 0.12))),
    )


def draw_queue(chance: Random) -> QueueOptions:
    high = chance.choice((None, None, 2, 5))
    lease_ms = chance.choice((200, 500, 1200))
    return QueueOptions(
        capacity=chance.choice((1_000_000, 1_000_000, 6)),
        lease_duration_ms=lease_ms,
        heartbeat_interval_ms=chance.choice((None, lease_ms // 4)),
        sweep_interval_ms=chance.choice((0, 20, 200)),
        max_attempts=chance.choice((1, 2, 3, 5)),
        requeue_delay_ms=chance.choice((0, 50, 400)),
        requeue_delay_max_ms=1_000,
        serialize_by=chance.choice(
            (SerializeBy.NONE, SerializeBy.RESOURCE, SerializeBy.PARTITION_KEY)
        ),
        pending_high=high,
        enqueue_wait_ms=chance.choice((0, 100, 800)),
        finished_entries=chance.choice((2, 100_000)),
        # Whatever is refused is written down soon, or a world ends before it is.
        refusals_every_ms=lease_ms if high is None else 0,
    )
