"""What one seed of a simulated mesh switches on: few things at a time, so that none hides another.

Times are short, because a schedule costs what happens in it: twenty thousand small ones meet more
than two thousand long ones.
"""

from dataclasses import dataclass
from random import Random

from omnirelay.lease.options import QueueOptions
from omnirelay.mesh.keeper import KeepOptions

APPEND_MISHAPS = ("append_lost", "append_unconfirmed", "append_late", "append_twice")
"""An append that the store never saw, took without saying so, takes later, or gets again."""

MESSAGE_MISHAPS = ("lost_message", "slow_message", "double_message", "lost_wake_up")

BLOWS = (
    "kill",
    "pause",
    "cut_from_store",
    "cut_between_nodes",
    "isolate",
    "wall_jump",
    "slow_store",
    "hand_over",
    "leave",
)
"""What the nemesis does at moments it chooses, mostly to the owner."""

FAULTS = (*APPEND_MISHAPS, *MESSAGE_MISHAPS, *BLOWS, "clock_rates", "clock_offsets")

HABITS = ("heartbeat", "stall", "abandon", "fail", "release", "read", "neighbours", "keep")
"""`neighbours`: the nodes know one another, and take their places in the line. `keep`: snapshots
are taken and what they cover is pruned."""

DRIFT = 0.04
"""How much faster or slower than the truth a node's clock may run."""


@dataclass(frozen=True, slots=True)
class MeshPlan:
    seed: int
    faults: frozenset[str]
    habits: frozenset[str]
    queue: QueueOptions
    keep: KeepOptions
    nodes: int
    ttl_ms: int
    producers: int
    workers: int
    items: int
    """Items each producer hands in."""
    storm_s: float
    latency_s: tuple[float, float]
    """One way, to the store."""
    has_quick_reads: bool
    """The store answers reads in the same breath, as one on the same machine would."""
    wakes_every_s: float
    """The store tells those who wait that there is more only so often; 0: each time."""
    lag_s: float
    """How late a node may see what others have appended."""

    def __str__(self) -> str:
        faults = ", ".join(sorted(self.faults)) or "none"
        habits = ", ".join(sorted(self.habits)) or "none"
        return (
            f"seed {self.seed}: {self.nodes} nodes, an epoch of {self.ttl_ms} ms; "
            f"faults {faults}; habits {habits}"
        )

    @property
    def is_gentle(self) -> bool:
        """Shards only move because they are meant to, and then nobody notices."""
        return self.faults <= {"hand_over", "clock_offsets"}


def draw_mesh_plan(seed: int) -> MeshPlan:
    chance = Random(seed * 2_654_435_761 + 3)
    fault_share = chance.choice((0.08, 0.2, 0.4))
    faults = frozenset(name for name in FAULTS if chance.random() < fault_share)
    if chance.random() < 0.05:
        faults = frozenset({"hand_over"})
    # Nodes that ask one another all the time cost five times as much as those that do not.
    shares = {"neighbours": 0.06, "keep": 0.3}
    habits = frozenset(name for name in HABITS if chance.random() < shares.get(name, 0.4))
    if "neighbours" not in habits:
        faults -= {"leave"}
    elif chance.random() < 0.5:
        faults |= {"leave"}
    ttl_ms = chance.choice((60, 90, 150))
    every = chance.choice((3, 6, 12)) if "keep" in habits else 100_000
    return MeshPlan(
        seed=seed,
        faults=faults,
        habits=habits,
        queue=QueueOptions(
            lease_duration_ms=chance.choice((100, 100, 150, 300)),
            sweep_interval_ms=chance.choice((0, 20)),
            max_attempts=chance.choice((2, 5)),
            requeue_delay_ms=chance.choice((0, 0, 30)),
            refusals_every_ms=0,
        ),
        keep=KeepOptions(snapshot_every=every, retain_ms=chance.choice((0, 100, 3_600_000))),
        nodes=chance.choice((3, 3, 3, 3, 3, 4, 5)),
        ttl_ms=ttl_ms,
        producers=chance.choice((1, 1, 2)),
        workers=chance.choice((1, 1, 2)),
        items=chance.randint(1, 2),
        storm_s=ttl_ms / 1000 * chance.uniform(1.0, 2.4),
        has_quick_reads=chance.random() < 0.7,
        latency_s=chance.choice(((0.0005, 0.002), (0.001, 0.006), (0.002, 0.015))),
        wakes_every_s=chance.choice((0.0, 0.015, 0.03)),
        lag_s=chance.choice((0.0, 0.005, 0.015, 0.03)),
    )
