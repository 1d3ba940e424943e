"""One envelope per commit, as JSON that people, SQLite, DuckDB and Spark can read without us.

    {"v":1,"shard":…,"epoch":…,"node":…,"first":…,"last":…,"time":…,"prev":…,
     "records":[…],"pending":[…],"active":[…],"checksum":"…"}

`records[i]` has sequence `first + i`; `pending[i]` and `active[i]` are the queue's depth after it.
`checksum` covers every stored byte before its own member and `prev` is the checksum of the envelope
before, so a flipped, missing, reordered or cut-in envelope is noticed. A lost tail is not: that is
what the high-water mark is for.
"""

from collections.abc import Iterable, Iterator
from hashlib import blake2b
from typing import Annotated

import msgspec

from omnirelay.lease.records import Record
from omnirelay.model import limits
from omnirelay.model.errors import Corrupt

VERSION = 1
CHECKSUM_BYTES = 16
_TAIL_OPEN = b',"checksum":"'
_TAIL_CLOSE = b'"}'
_TAIL_LENGTH = len(_TAIL_OPEN) + 2 * CHECKSUM_BYTES + len(_TAIL_CLOSE)
_HEAD = b'{"v":%d,' % VERSION


class Envelope(msgspec.Struct, frozen=True, gc=False):
    v: int
    shard: str
    epoch: int
    node: str
    first: int
    last: int
    time: int
    prev: str
    records: list[Record]
    pending: list[int]
    active: list[int]
    checksum: str = ""

    def numbered(self) -> Iterator[tuple[int, Record]]:
        return enumerate(self.records, self.first)


class Sealed(msgspec.Struct, frozen=True, gc=False):
    """An envelope as it is stored, with what a backend needs to know of it."""

    shard: str
    first: int
    last: int
    epoch: int
    time: int
    checksum: str
    body: bytes


_Place = Annotated[int, msgspec.Meta(ge=1, le=limits.WIRE_NUMBER_MAX)]


class _Unsealed(msgspec.Struct, frozen=True, gc=False):
    v: int
    shard: str
    epoch: int
    node: str
    first: int
    last: int
    time: int
    prev: str
    records: list[Record]
    pending: list[int]
    active: list[int]


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Envelope)


class _Outer(msgspec.Struct, gc=False):
    shard: str
    epoch: _Place
    first: _Place
    last: _Place
    time: int
    pending: list[int]
    active: list[int]
    checksum: str


_outer = msgspec.json.Decoder(_Outer)


class _Version(msgspec.Struct):
    v: int = 0
    first: int = 0
    last: int = 0


def checksum(data: bytes | memoryview) -> str:
    return blake2b(data, digest_size=CHECKSUM_BYTES).hexdigest()


def seal(
    records: list[Record],
    depths: tuple[list[int], list[int]],
    *,
    head: tuple[str, int, str],
    first: int,
    time: int,
    prev: str,
) -> Sealed:
    """`head` is (shard, epoch, node); `depths` are pending and active counts after each record."""
    shard, epoch, node = head
    pending, active = depths
    last = first + len(records) - 1
    assert len(pending) == len(active) == len(records) > 0
    data = _encoder.encode(
        _Unsealed(VERSION, shard, epoch, node, first, last, time, prev, records, pending, active)
    )[:-1]
    own = checksum(data)
    body = b"".join((data, _TAIL_OPEN, own.encode(), _TAIL_CLOSE))
    return Sealed(shard, first, last, epoch, time, own, body)


def unseal(body: bytes, *, shard: str, at: int) -> Envelope:
    """Check and parse one stored envelope. `at` is the sequence it is stored under."""
    _check_sum(body, shard, at)
    try:
        if not body.startswith(_HEAD):
            body = _upgrade(body, shard, at)
        envelope = _decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Corrupt(shard, at, f"the envelope cannot be read: {error}") from None
    if envelope.shard != shard or envelope.first != at:
        raise Corrupt(shard, at, f"the envelope stored here is {envelope.shard} {envelope.first}")
    count = envelope.last - envelope.first + 1
    if not count == len(envelope.records) == len(envelope.pending) == len(envelope.active):
        raise Corrupt(shard, at, f"the envelope claims {count} records and has other counts")
    if not count:  # it would end where it begins, and a reader would ask for it for ever
        raise Corrupt(shard, at, "the envelope has no records")
    return envelope


def sealed_of(body: bytes, *, shard: str, at: int) -> Sealed:
    """Of bytes from elsewhere that are to be stored at `at`, after as much of a check as needs no
    look at the records: a newer program may have kinds of them that this one does not know."""
    _check_sum(body, shard, at)
    try:
        outer = _outer.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Corrupt(shard, at, f"the envelope cannot be read: {error}") from None
    if outer.shard != shard or outer.first != at:
        raise Corrupt(shard, at, f"the envelope is of {outer.shard} {outer.first}")
    count = outer.last - outer.first + 1
    if not 0 < count == len(outer.pending) == len(outer.active):
        raise Corrupt(shard, at, f"the envelope claims {count} records and has other counts")
    return Sealed(shard, at, outer.last, outer.epoch, outer.time, outer.checksum, body)


def _check_sum(body: bytes, shard: str, at: int) -> None:
    if body[-_TAIL_LENGTH : -_TAIL_LENGTH + len(_TAIL_OPEN)] != _TAIL_OPEN:
        raise Corrupt(shard, at, "the envelope has no checksum; its end is missing")
    stored = body[-len(_TAIL_CLOSE) - 2 * CHECKSUM_BYTES : -len(_TAIL_CLOSE)].decode(
        "ascii", "replace"
    )
    if body[-len(_TAIL_CLOSE) :] != _TAIL_CLOSE:
        raise Corrupt(shard, at, "the envelope does not end as it was written")
    actual = checksum(memoryview(body)[:-_TAIL_LENGTH])
    if actual != stored:
        raise Corrupt(shard, at, f"checksum is {stored}, the bytes say {actual}")


def _upgrade(body: bytes, shard: str, at: int) -> bytes:
    """An envelope of another version as today's, once there is an older one."""
    version = msgspec.json.decode(body, type=_Version).v
    if version > VERSION:
        why = f"format version {version} is newer than this program knows ({VERSION}): upgrade"
        raise Corrupt(shard, at, why)
    if version < VERSION:
        raise Corrupt(shard, at, f"there never was a format version {version}")
    return body


def first_of(body: bytes) -> int:
    """The sequence an envelope claims to begin at, before anything is checked. 0 if unreadable."""
    try:
        return msgspec.json.decode(body, type=_Version).first
    except msgspec.DecodeError:
        return 0


def last_of(body: bytes) -> int:
    """The same for where it ends."""
    try:
        return msgspec.json.decode(body, type=_Version).last
    except msgspec.DecodeError:
        return 0


class Chain:
    """Checks that envelopes follow one another: no gap, no swap, no foreign link."""

    def __init__(self, shard: str, last: int = 0, link: str | None = "", epoch: int = 0) -> None:
        self.shard = shard
        self.last = last
        self.link = link
        """Checksum of the envelope that ends at `last`; None if it is not known (pruned)."""
        self.epoch = epoch

    def accept(self, body: bytes) -> Envelope:
        envelope = unseal(body, shard=self.shard, at=self.last + 1)
        if self.link is not None and envelope.prev != self.link:
            raise Corrupt(
                self.shard,
                envelope.first,
                f"it follows checksum {envelope.prev or '(none)'}, the journal has {self.link}",
            )
        if envelope.epoch < self.epoch:
            raise Corrupt(
                self.shard, envelope.first, f"epoch {envelope.epoch} after epoch {self.epoch}"
            )
        self.last, self.link, self.epoch = envelope.last, envelope.checksum, envelope.epoch
        return envelope

    def accept_all(self, bodies: Iterable[bytes]) -> Iterator[Envelope]:
        return (self.accept(body) for body in bodies)
