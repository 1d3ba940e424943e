"""OmniRelay: a lease-aware RPC mesh for data platforms."""

from omnirelay.journal.checkpoint import Checkpoint
from omnirelay.journal.events import Event
from omnirelay.journal.follower import FollowerStatus
from omnirelay.lease.answers import Accepted, Stats
from omnirelay.lease.options import QueueOptions, SerializeBy
from omnirelay.mesh.keeper import KeepOptions
from omnirelay.model.errors import (
    Backpressure,
    Closed,
    Corrupt,
    DiskFull,
    InvalidArgument,
    JournalOwned,
    NothingToLease,
    NotHolder,
    OmniRelayError,
    OutcomeUnknown,
    QueueFull,
    StaleToken,
    Unavailable,
    UnknownToken,
)
from omnirelay.model.items import ErrorInfo, Payload, PendingItem, Token
from omnirelay.sdk.arguments import new_item
from omnirelay.sdk.client import Relay
from omnirelay.sdk.connect import connect, connect_sync
from omnirelay.sdk.lease import DeadLetter, Lease
from omnirelay.sdk.sync import SyncLease, SyncRelay
from omnirelay.sdk.worker import Worker
from omnirelay.transports.client_tls import Tls

__version__ = "0.1.0"

__all__ = [
    "Accepted",
    "Backpressure",
    "Checkpoint",
    "Closed",
    "Corrupt",
    "DeadLetter",
    "DiskFull",
    "ErrorInfo",
    "Event",
    "FollowerStatus",
    "InvalidArgument",
    "JournalOwned",
    "KeepOptions",
    "Lease",
    "NotHolder",
    "NothingToLease",
    "OmniRelayError",
    "OutcomeUnknown",
    "Payload",
    "PendingItem",
    "QueueFull",
    "QueueOptions",
    "Relay",
    "SerializeBy",
    "StaleToken",
    "Stats",
    "SyncLease",
    "SyncRelay",
    "Tls",
    "Token",
    "Unavailable",
    "UnknownToken",
    "Worker",
    "connect",
    "connect_sync",
    "new_item",
]
