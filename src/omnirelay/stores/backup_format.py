"""A backup: one file, one JSON value a line, that needs nothing but itself to be checked.

    {"omnirelay":"backup","v":1,"shard":…,"first":…}     what it is, and where it begins
    {"v":1,"shard":…,…,"checksum":…}                     the envelopes, byte for byte, in order
    {"part":0,"sequence":…,"body":"…"}                   the latest snapshot: its parts in base64,
    {"snapshot":{…}}                                     then what they are
    {"position":{…}}                                     how far each reader is
    {"end":{"last":…,"epoch":…,"checksum":…,"time":…,"lines":…,"digest":…}}

`digest` is the BLAKE2b (16 bytes, hex) of every byte before the last line. A file without that line
was not finished.
"""

import hashlib
from typing import Any

import msgspec

from omnirelay.journal.backend import SnapshotRef
from omnirelay.journal.checkpoint import Checkpoint
from omnirelay.journal.format import CHECKSUM_BYTES

VERSION = 1
OPENING = b'{"omnirelay":"backup",'
ENVELOPE = b'{"v":'


class Header(msgspec.Struct, frozen=True):
    omnirelay: str
    v: int
    shard: str
    first: int


class Part(msgspec.Struct, frozen=True):
    part: int
    sequence: int
    body: bytes


class SnapshotLine(msgspec.Struct, frozen=True):
    snapshot: SnapshotRef


class PositionLine(msgspec.Struct, frozen=True):
    position: Checkpoint


class End(msgspec.Struct, frozen=True):
    last: int
    epoch: int
    checksum: str
    time: int
    lines: int
    digest: str


class EndLine(msgspec.Struct, frozen=True):
    end: End


def new_digest() -> "hashlib.blake2b":
    return hashlib.blake2b(digest_size=CHECKSUM_BYTES)


def line_of(value: Any) -> bytes:
    """Any: one of the structs above."""
    return msgspec.json.encode(value) + b"\n"
