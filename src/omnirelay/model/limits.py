"""Every bound of the system, in one place. Passing one raises a named error, never an OOM.

Units are part of the name. A value that an operator may change is a default of `QueueOptions`
(lease/options.py); what stands here is either that default or a hard ceiling.
"""

from typing import Final

# -- one payload ------------------------------------------------------------------------------
BODY_BYTES_MAX: Final = 1 << 20
NAME_CHARS_MAX: Final = 512
"""resourceType, resourceId, partitionKey, peerId, principal, requestId, node and shard names."""
ATTRIBUTES_MAX: Final = 64
ATTRIBUTE_CHARS_MAX: Final = 4096
ERROR_CHARS_MAX: Final = 4096

# -- one queue --------------------------------------------------------------------------------
CAPACITY_MAX: Final = 10_000_000
PRIORITY_ABS_MAX: Final = 1000
ATTEMPTS_MAX: Final = 1_000_000
LEASE_MS_MIN: Final = 100
LEASE_MS_MAX: Final = 24 * 3600 * 1000
DELAY_MS_MAX: Final = 366 * 24 * 3600 * 1000
DEDUPE_ENTRIES_MAX: Final = 10_000_000
RESOURCE_TYPES_MAX: Final = 64
"""Types one lease call may filter by."""

# -- one call ---------------------------------------------------------------------------------
BATCH_MAX: Final = 1000
"""Items one batch, page, drain or restore call may carry."""
RESTORED_NUMBER_MAX: Final = 1 << 52
"""Sequence ids and fences a restored item may carry. The queue counts on from the highest, and has
as many left before readers that keep JSON numbers as doubles lose digits."""
PAGE_BYTES_MAX: Final = 4 << 20
"""About what the items of one drain page or lease batch may take in a message; it ends early rather
than pass it by more than one item, so that the answer always fits."""
WAIT_MS_MAX: Final = 3600 * 1000
HISTORY_TAIL_MAX: Final = 50
HISTORY_EVENTS_MAX: Final = 20_000
"""Events at the end of the journal that `inspect` looks through for an item's history."""

# -- one call over a wire ---------------------------------------------------------------------
WIRE_NUMBER_MAX: Final = (1 << 53) - 1
"""Beyond it, readers that keep JSON numbers as doubles lose digits."""
HEADERS_MAX: Final = 100
HEADER_BYTES_MAX: Final = 32 << 10
MESSAGE_BYTES_MAX: Final = 8 << 20
"""One body, frame or stream message, in or out; the largest payload in base64 fits five times."""
CONNECTIONS_MAX: Final = 10_000
CALLS_PER_CONNECTION_MAX: Final = 4096
"""Calls under way on one multiplexed connection; the next one is refused as overloaded."""
STREAM_WINDOW_MESSAGES_MAX: Final = 256
"""Stream messages one side may have under way before the other grants more."""
STREAM_WINDOW_BYTES_MAX: Final = 1 << 20
"""Bytes of them; the message that reaches it may pass it."""

# -- one shard's writer -----------------------------------------------------------------------
INBOX_MAX: Final = 65_536
"""Calls waiting for the writer; the next one is refused as overloaded."""
WAITERS_MAX: Final = 65_536
ENVELOPE_RECORDS_MAX: Final = 8192
ENVELOPE_BYTES_MAX: Final = 32 << 20
TURN_COMMANDS_MAX: Final = 4096

# -- journal ----------------------------------------------------------------------------------
READ_ENVELOPES_MAX: Final = 512
SNAPSHOT_PART_ITEMS_MAX: Final = 500
SINK_BATCH_EVENTS_MAX: Final = 1000
SINK_HELD_EVENTS_MAX: Final = 10_000
"""Events a checkpointing sink holds back while an earlier one is missing."""
PEER_POSITIONS_MAX: Final = 10_000
PRUNE_ENVELOPES_MAX: Final = 256
"""Envelopes one pruning step deletes, so that it never holds the writer for long."""

# -- identity ---------------------------------------------------------------------------------
BEARER_BYTES_MAX: Final = 16 << 10
BEARER_LIFETIME_S_MAX: Final = 366 * 24 * 3600
BEARER_LEEWAY_S_MAX: Final = 300
KEY_SET_BYTES_MAX: Final = 256 << 10
KEYS_MAX: Final = 64
"""Keys one issuer may publish."""
VERIFIED_BEARERS_MAX: Final = 4096
"""Bearer tokens whose signature need not be checked again; the oldest is forgotten first."""
USED_BEARERS_MAX: Final = 100_000
"""Ids of single-use bearer tokens remembered until they expire; the next one is refused."""
DECISIONS_MAX: Final = 8192
"""Answers of the policy that are remembered."""
GRANTS_MAX: Final = 10_000
LIMITED_PRINCIPALS_MAX: Final = 10_000
"""Principals whose rate is remembered; the one seen longest ago is forgotten first."""

# -- the pipeline's tables

FOOTER_READERS_MAX: Final = 16
"""Threads that read the footers of files just written."""
STATISTIC_CHARS_MAX: Final = 64
"""Of a text's least and greatest value in a table's log."""
BOUNDS_IN_WORDS_MAX: Final = 64
"""Shards whose new events are named in the query itself; more are joined to a list."""

# -- the pipeline's answers

REPLAY_INSPECT_MAX: Final = 10_000
"""Items of a node that a comparison asks for one by one."""
AUDIT_FINDINGS_MAX: Final = 1000
"""Findings of one statement that an audit names; it says so if there were more."""
