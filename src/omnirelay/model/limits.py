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
REQUEST_DIGITS_MAX: Final = 15
"""Of a numbered request id (`name.17`); a longer one is any text."""
FINISHED_BLOCK_MAX: Final = 256
"""Completions that are remembered together: one of them is looked for from the front."""
RESOURCE_TYPES_MAX: Final = 64
"""Types one lease call may filter by."""

# -- one call ---------------------------------------------------------------------------------
BATCH_MAX: Final = 1000
"""Items one batch, page, drain or restore call may carry."""
TOGETHER_MAX: Final = BATCH_MAX // 2
"""Items that callers who know nothing of one another ask for in one call: with more, the node would
work on all of them while every caller waits, and then the other way round."""
RESTORED_NUMBER_MAX: Final = 1 << 52
"""Sequence ids and fences a restored item may carry. The queue counts on from the highest, and has
as many left before readers that keep JSON numbers as doubles lose digits."""
PAGE_BYTES_MAX: Final = 4 << 20
"""About what the items of one drain page or lease batch may take in a message; it ends early rather
than pass it by more than one item, so that the answer always fits."""
WAIT_MS_MAX: Final = 3600 * 1000
BEFORE_DEADLINE_MS: Final = 200
"""A lease call that waits until its deadline is answered so much earlier, or a quarter of the time
it had if that is less."""
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
CONNECTIONS_PER_ADDRESS_MAX: Final = 1_000
"""Of them, those of one client address, unless a node is told another number."""
CALLS_PER_CONNECTION_MAX: Final = 4096
"""Calls under way on one multiplexed connection; the next one is refused as overloaded."""
SILENT_NODE_MS_MAX: Final = 10 * 60 * 1000
"""How long a node that no longer answers holds back a record format that it does not read."""
NODES_REACHED_MAX: Final = 64
"""Other nodes that one passes calls on to at a time."""
STREAM_WINDOW_MESSAGES_MAX: Final = 256
"""Stream messages one side may have under way before the other grants more."""
STREAM_WINDOW_BYTES_MAX: Final = 1 << 20
"""Bytes of them; the message that reaches it may pass it."""

# -- one shard's writer -----------------------------------------------------------------------
INBOX_MAX: Final = 65_536
"""Calls waiting for the writer; the next one is refused as overloaded."""
WAITERS_MAX: Final = 65_536
ENVELOPE_RECORDS_MAX: Final = 2048
"""Of one turn; the call that reaches it may pass it. A larger one would save little, and whoever
has been answered works while the next turn is taken."""
ENVELOPE_BYTES_MAX: Final = 32 << 20
TURN_COMMANDS_MAX: Final = 4096
BESIDE_RECORDS_MIN: Final = 256
"""From here on a turn's append is worth a change of thread: its node goes on meanwhile."""
REFUSALS_MAX: Final = 256
"""Different refusals, of named tokens, that wait to be written down; as many again without their
tokens, and further ones are forgotten."""
FOLLOWED_MAX: Final = 64
"""Readers of a journal whose lag is written down; of more, those that are furthest behind."""
LAG_EVERY_S: Final = 30.0
"""How often the owner's node looks how far they are."""
ANSWER_S_MAX: Final = 3.0
"""A shard that owes an answer for so long is called not ready. Longer than a hand-over takes, in
which calls wait."""
PASSED_OVER_MAX: Final = 8
"""Turns that a shard's task waits for drivers before they wait for it."""
AHEAD_COMMANDS_MIN: Final = 256
"""So many that wait are worth a turn of their own while the last one is still being confirmed;
fewer had better wait, and share a commit with those that come meanwhile."""

# -- journal ----------------------------------------------------------------------------------
READ_ENVELOPES_MAX: Final = 512
CLOSE_BEHIND_EVENTS: Final = 20_000
"""A follower that is further behind its journal than that is not ready: folding it takes a moment,
and it would take over late."""
SNAPSHOT_PART_ITEMS_MAX: Final = 500
SINK_BATCH_EVENTS_MAX: Final = 1000
SINK_HELD_EVENTS_MAX: Final = 10_000
"""Events a checkpointing sink holds back while an earlier one is missing."""
PEER_POSITIONS_MAX: Final = 10_000
READERS_MAX: Final = 256
"""Readers of one journal that callers from elsewhere may make pruning wait for."""
PRUNE_ENVELOPES_MAX: Final = 256
"""Envelopes one pruning step deletes, so that it never holds the writer for long."""

COPY_ENVELOPES_MAX: Final = 128
COPY_BYTES_MAX: Final = 4 << 20
"""What a copy or a mirror appends at once; the envelope that reaches it may pass it."""

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
SETTLED_METAS_MAX: Final = 4096
"""Metas of calls of which it is remembered that no middleware has to do with them."""
GRANTS_MAX: Final = 10_000
LIMITED_PRINCIPALS_MAX: Final = 10_000
"""Principals whose rate is remembered; the one seen longest ago is forgotten first."""

# -- the pipeline's tables

ROW_GROUP_ROWS: Final = 100_000
"""Of Parquet files that we write ourselves: row groups that are worth a task of Spark's."""
ROWS_HERE_MAX: Final = 250_000
"""New events that the driver reads by itself: about as many as two workers of Spark read in that
time if they are there already; to start them takes as long as to read a million."""
NODE_RETRY_S: Final = 5.0
"""How long one question to a node that a pipeline reads is asked again."""
STREAM_PAUSE_FIRST_S: Final = 0.5
STREAM_PAUSE_LONGEST_S: Final = 10.0
"""Between two looks of a stream whether what went away is back."""
STREAM_IDLE_PAUSE_S: Final = 0.1
"""At least this between two looks that find nothing new, however short an interval is asked for."""
CONNECT_SILENCE_S: Final = 300.0
"""How long a Spark Connect server hears nothing from a stream with nothing to do. Unless told
otherwise it forgets a session after an hour."""
EVENTS_FEW_MAX: Final = 50_000
"""Of all journals of a run: so few that interpreting queries takes less time than compiling them.
With 5,000 a run of all tables took 12 s instead of 15, with 100,000 the same. The rows of their
tables are written by the driver, but for those with bodies."""
FOOTER_READERS_MAX: Final = 16
"""Threads that read the footers of files just written."""
STATISTIC_CHARS_MAX: Final = 64
"""Of a text's least and greatest value in a table's log."""
FRAMES_KNOWN_MAX: Final = 64
"""Sets of a table's files that Spark has looked at: a step of all tables asks for about forty."""
BOUNDS_IN_WORDS_MAX: Final = 64
"""Shards whose new events are named in the query itself; more are joined to a list."""

# -- the pipeline's answers

REPLAY_INSPECT_MAX: Final = 10_000
"""Items of a node that a comparison asks for one by one."""
REPLAY_HELD_BYTES_MAX: Final = 256 << 20
"""Of one shard's rows that come as a stream and are held to be looked at twice; and of an outcome
that the driver takes at once, not shard by shard."""
REPLAY_GROUP_ROWS_MAX: Final = 2_000_000
"""Of a row group whose rows are looked at together: it cannot be read in part."""
AUDIT_FINDINGS_MAX: Final = 1000
"""Findings of one statement that an audit names; it says so if there were more."""
AUDIT_COMMITS_MAX: Final = 5
"""How often a row of the audit's tables is tried, where others were faster each time."""

# -- journals on NATS and on object stores ----------------------------------------------------
NATS_PENDING_BYTES_MAX: Final = 64 << 20
"""Bytes one connection may hold that were not sent, and half of what one batch may bring in."""
NATS_READ_BYTES_MAX: Final = 16 << 20
"""About what one read of a journal on NATS brings in; the envelope that reaches it may pass it."""
OBJECT_FETCHES_MAX: Final = 32
"""Objects fetched or deleted at the same time."""
OBJECT_PART_BYTES: Final = 8 << 20
"""Of a larger object, what one request sends or fetches."""
SEGMENT_ENVELOPES_MAX: Final = 1024
SEGMENT_BYTES_MAX: Final = 16 << 20
"""Of the envelopes rolled up into one object; the envelope that reaches it may pass it."""

# -- a hub ------------------------------------------------------------------------------------
HUB_PIECE_BYTES_MAX: Final = 2 << 20
"""Of a body in one message; a larger one travels in pieces."""
HUB_BODY_BYTES_MAX: Final = 1 << 30
"""Of one envelope, or one part of a snapshot."""
HUB_HELD_BYTES_MAX: Final = 256 << 20
"""Bodies a hub has in hand and has not stored; a lone one may pass it."""
HUB_READ_BYTES_MAX: Final = 16 << 20
"""About what one read through a hub brings in; the envelope that reaches it may pass it."""
HUB_SHARDS_MAX: Final = 256
HUB_SUBSCRIPTIONS_MAX: Final = 1024
HUB_WAITING_MAX: Final = 64
"""Calls that wait for one shard's store; the next one is refused as overloaded."""
HUB_THREADS_MAX: Final = 64
"""Shards whose stores may block at the same time."""
