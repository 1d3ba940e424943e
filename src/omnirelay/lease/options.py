"""How one queue behaves. Checked once, when the queue is built."""

from enum import StrEnum

import msgspec

from omnirelay.model import limits
from omnirelay.model.errors import InvalidOption


class SerializeBy(StrEnum):
    NONE = "none"
    RESOURCE = "resource"
    PARTITION_KEY = "partition_key"


class Rules(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, gc=False):
    """What an owner lays down for whoever follows its journal. It is journaled with every epoch, so
    that a replay under other settings still gives the state that was."""

    serialize_by: SerializeBy = SerializeBy.NONE
    dedupe_window_ms: int = 24 * 3600 * 1000
    dedupe_entries: int = 200_000
    finished_entries: int = 100_000
    pending_high: int = 0
    pending_low: int = 0
    ttl_ms: int = 0
    """How long the journal may be silent before another may try to own it; 0: nobody may, a lock
    of the store says who owns it."""
    url: str = ""
    """Where the owner takes calls that other nodes pass on."""
    format: int = 1
    """The newest record format of this epoch: every node that follows can read it."""


class QueueOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of one queue; every one has a default that works."""

    capacity: int = 1_000_000
    lease_duration_ms: int = 30_000
    heartbeat_interval_ms: int | None = None
    """What workers are told; a third of the lease unless set, never more than half of it."""
    sweep_interval_ms: int = 20
    """Expiries closer together than this share one record batch. A late holder is refused at
    its deadline in any case."""
    max_attempts: int = 5
    requeue_delay_ms: int = 200
    requeue_backoff: float = 2.0
    requeue_delay_max_ms: int = 300_000
    requeue_jitter: float = 0.2
    serialize_by: SerializeBy = SerializeBy.NONE
    pending_high: int | None = None
    pending_low: int | None = None
    enqueue_wait_ms: int = 5_000
    """How long an enqueue waits under backpressure before it is refused."""
    dedupe_window_ms: int = 24 * 3600 * 1000
    dedupe_entries: int = 200_000
    finished_entries: int = 100_000
    refusals_every_ms: int = 10_000
    """Refusals are gathered so long and then written down with the next commit, if any comes."""

    def __post_init__(self) -> None:
        if self.serialize_by not in set(SerializeBy):
            raise InvalidOption(
                f"serialize_by is {self.serialize_by!r}, must be none, resource or partition_key"
            )
        _within("capacity", self.capacity, 1, limits.CAPACITY_MAX)
        _within(
            "lease_duration_ms", self.lease_duration_ms, limits.LEASE_MS_MIN, limits.LEASE_MS_MAX
        )
        if self.heartbeat_interval_ms is not None:
            # A heartbeat that comes after half the lease leaves no room for one lost reply.
            _within(
                "heartbeat_interval_ms", self.heartbeat_interval_ms, 1, self.lease_duration_ms // 2
            )
        _within("sweep_interval_ms", self.sweep_interval_ms, 0, 60_000)
        _within("max_attempts", self.max_attempts, 1, limits.ATTEMPTS_MAX)
        _within("requeue_delay_ms", self.requeue_delay_ms, 0, limits.DELAY_MS_MAX)
        _within("requeue_delay_max_ms", self.requeue_delay_max_ms, 0, limits.DELAY_MS_MAX)
        if not 1.0 <= self.requeue_backoff <= 10.0:
            raise InvalidOption(f"requeue_backoff is {self.requeue_backoff}, must be 1.0 to 10.0")
        if not 0.0 <= self.requeue_jitter <= 0.9:
            raise InvalidOption(f"requeue_jitter is {self.requeue_jitter}, must be 0.0 to 0.9")
        _within("dedupe_window_ms", self.dedupe_window_ms, 0, limits.DELAY_MS_MAX)
        _within("dedupe_entries", self.dedupe_entries, 1, limits.DEDUPE_ENTRIES_MAX)
        _within("finished_entries", self.finished_entries, 1, limits.DEDUPE_ENTRIES_MAX)
        _within("refusals_every_ms", self.refusals_every_ms, 0, limits.DELAY_MS_MAX)
        _within("enqueue_wait_ms", self.enqueue_wait_ms, 0, limits.WAIT_MS_MAX)
        self._check_watermarks()

    def _check_watermarks(self) -> None:
        if self.pending_high is None:
            if self.pending_low is not None:
                raise InvalidOption("pending_low needs pending_high")
            return
        _within("pending_high", self.pending_high, 1, self.capacity)
        if self.pending_low is not None:
            _within("pending_low", self.pending_low, 0, self.pending_high - 1)

    def rules(self) -> Rules:
        high = self.pending_high or 0
        low = self.pending_low if self.pending_low is not None else high // 2
        return Rules(
            serialize_by=self.serialize_by,
            dedupe_window_ms=self.dedupe_window_ms,
            dedupe_entries=self.dedupe_entries,
            finished_entries=self.finished_entries,
            pending_high=high,
            pending_low=low,
        )

    def heartbeat_ms(self, lease_ms: int) -> int:
        return min(self.heartbeat_interval_ms or lease_ms // 3, lease_ms // 2)


def _within(name: str, value: int, low: int, high: int) -> None:
    if type(value) is not int or not low <= value <= high:
        raise InvalidOption(f"{name} is {value!r}, must be a whole number from {low} to {high}")
