"""An envelope is read back as it was written, or called damaged by its sequence. Never a third."""

import json
import re
from collections.abc import Callable

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnirelay.journal.format import (
    VERSION,
    Chain,
    Envelope,
    Sealed,
    checksum,
    first_of,
    seal,
    unseal,
)
from omnirelay.lease import records as kinds
from omnirelay.lease.options import Rules
from omnirelay.lease.records import Enqueued, EpochStarted, Item, Record
from omnirelay.model.errors import Corrupt
from omnirelay.model.items import Payload
from omnirelay.testing import strategies as drawn
from omnirelay.testing.envelopes import Scribe

SHARD = "orders"
AT = 4


def one_envelope() -> Sealed:
    scribe = Scribe(SHARD)
    scribe.seal(AT - 1)
    return scribe.seal(2, text="sn\u00f6w \u2603")


def resealed(body: bytes, change: Callable[[bytes], bytes]) -> bytes:
    """Other content with a checksum that is right for it, as another program might write it."""
    data = change(body[: body.rindex(b',"checksum":"')])
    return data + b',"checksum":"' + checksum(data).encode() + b'"}'


def replaced(old: bytes, new: bytes) -> Callable[[bytes], bytes]:
    def change(data: bytes) -> bytes:
        assert old in data
        return data.replace(old, new, 1)

    return change


def damage(body: bytes, *, at: int = AT) -> Corrupt:
    with pytest.raises(Corrupt) as caught:
        unseal(body, shard=SHARD, at=at)
    assert caught.value.sequence == at
    assert caught.value.shard == SHARD
    return caught.value


# -- every change is noticed --------------------------------------------------------------------


def test_every_flipped_bit_is_noticed() -> None:
    body = one_envelope().body
    for place in range(8 * len(body)):
        bad = bytearray(body)
        bad[place // 8] ^= 1 << place % 8
        damage(bytes(bad))


def test_every_truncation_is_noticed() -> None:
    body = one_envelope().body
    for length in range(len(body)):
        damage(body[:length])
        damage(body[len(body) - length :])


def test_every_byte_left_out_or_doubled_is_noticed() -> None:
    body = one_envelope().body
    for at in range(len(body)):
        damage(body[:at] + body[at + 1 :])
        damage(body[: at + 1] + body[at:])


def test_anything_added_at_the_end_is_noticed() -> None:
    body = one_envelope().body
    for more in (b"\n", b" ", b"\x00", b"}", body):
        damage(body + more)


@given(st.binary(max_size=200))
def test_noise_is_never_an_envelope(noise: bytes) -> None:
    damage(noise)
    assert first_of(noise) >= 0


# -- a right checksum is not enough -------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (replaced(b'"first":4', b'"first":5'), "orders 5"),
        (replaced(b'"shard":"orders"', b'"shard":"others"'), "others 4"),
        (replaced(b'"last":5', b'"last":6'), "claims 3 records"),
        (replaced(b'"last":5', b'"last":3'), "claims 0 records"),
        (replaced(b'"active":[0,0]', b'"active":[0]'), "claims 2 records"),
        (replaced(b'"active":[0,0]', b'"active":[0,0,0]'), "claims 2 records"),
        (replaced(b'"pending":[', b'"pending":[9,'), "claims 2 records"),
        (replaced(b'"Enqueue"', b'"Enqueued"'), "cannot be read"),
        (replaced(b'"time":', b'"time":"x'), "cannot be read"),
        (replaced(b'"node":"node-1"', b'"node":"\xff"'), "cannot be read"),
        (replaced(b'"node":"node-1",', b""), "cannot be read"),
        (lambda data: b"[" + data, "cannot be read"),
        (lambda data: b"", "cannot be read"),
    ],
)
def test_content_that_makes_no_envelope_is_damage_though_its_checksum_is_right(
    change: Callable[[bytes], bytes], words: str
) -> None:
    assert words in damage(resealed(one_envelope().body, change)).message


def test_an_envelope_without_records_is_damage() -> None:
    """It would end where it begins, and a reader would ask for it for ever."""
    body = resealed(
        one_envelope().body,
        lambda data: re.sub(
            rb'"last":5(.*)"records":.*', rb'"last":3\1"records":[],"pending":[],"active":[]', data
        ),
    )
    assert "no records" in damage(body).message


def test_a_newer_version_asks_for_an_upgrade() -> None:
    newer = b'{"v":%d,' % (VERSION + 1)
    body = resealed(one_envelope().body, lambda data: newer + data[len(newer) :])
    message = damage(body).message
    assert f"format version {VERSION + 1}" in message
    assert "upgrade" in message


def test_a_newer_version_may_have_members_and_records_we_do_not_know() -> None:
    body = resealed(one_envelope().body, lambda _: b'{"v":7,"wholly":{"other":[1,2,3]}')
    assert "upgrade" in damage(body).message


@pytest.mark.parametrize("start", [b'{"v":0,', b'{"v":"1",', b'{"v":-1,', b'{"w":1,'])
def test_a_version_that_never_was_is_not_called_newer(start: bytes) -> None:
    body = resealed(one_envelope().body, lambda data: start + data[len(b'{"v":1,') :])
    assert "upgrade" not in damage(body).message


# -- what is written is read --------------------------------------------------------------------

small = st.integers(0, 1 << 53)
items = st.builds(
    Item,
    sequence_id=small,
    payload=drawn.payloads,
    attempt=drawn.attempts,
    enqueued_at=small,
    priority=drawn.priorities,
    available_at=small,
    max_attempts=small,
    lease_ms=small,
    last_error=st.none() | drawn.errors,
    last_token=st.none() | drawn.tokens(),
    origin=st.none() | drawn.names,
    dead=st.booleans(),
)
fields: dict[str, st.SearchStrategy[object]] = {
    "payload": drawn.payloads,
    "rules": st.builds(Rules, dedupe_entries=small, pending_high=small),
    "error": drawn.errors,
    "disposition": st.sampled_from([kinds.REQUEUED, kinds.DEAD_LETTERED]),
    "details": st.none() | st.dictionaries(drawn.text, drawn.text, max_size=3),
    "beats": st.lists(st.tuples(small, small, small), max_size=4).map(tuple),
    "items": st.lists(items, max_size=3).map(tuple),
    "sequence_ids": st.lists(small, max_size=4).map(tuple),
    "priority": drawn.priorities,
}
texts = {"node", "origin", "lease_id", "principal", "verb", "code", "reader"}
optional = {"peer_id", "request_id", "proof"}


def records_of(kind: type[msgspec.Struct]) -> st.SearchStrategy[Record]:
    """Every field of the kind, so that a new one cannot be forgotten here."""
    chosen = {}
    for name in kind.__struct_fields__:
        plain = drawn.text if name in texts else small
        chosen[name] = fields.get(name, (st.none() | drawn.text) if name in optional else plain)
    return st.builds(kind, **chosen)  # type: ignore[arg-type]


every_kind = [records_of(kind) for kind in Record.__args__]
envelopes = st.lists(st.tuples(st.one_of(every_kind), small, small), min_size=1, max_size=5)


@given(envelopes, drawn.names, drawn.names, small, small)
def test_records_come_back_as_they_were_sealed(
    rows: list[tuple[Record, int, int]], shard: str, node: str, first: int, time: int
) -> None:
    records, pending, active = (list(column) for column in zip(*rows, strict=True))
    sealed = seal(
        records,
        (pending, active),
        head=(shard, 3, node),
        first=first,
        time=time,
        prev="before",
    )
    envelope = unseal(sealed.body, shard=shard, at=first)
    assert envelope.records == records
    assert (envelope.pending, envelope.active) == (pending, active)
    assert (envelope.shard, envelope.node, envelope.epoch) == (shard, node, 3)
    assert (envelope.first, envelope.last) == (sealed.first, sealed.last)
    assert envelope.last - envelope.first + 1 == len(records)
    assert (envelope.time, envelope.prev) == (time, "before")
    assert envelope.checksum == sealed.checksum
    assert json.loads(sealed.body)["records"][0]["eventType"]


def test_what_is_stored_is_json_for_anybody_with_the_checksum_last() -> None:
    body = one_envelope().body
    members = json.loads(body)
    assert list(members) == [
        *("v", "shard", "epoch", "node", "first", "last", "time", "prev"),
        *("records", "pending", "active", "checksum"),
    ]
    assert body.endswith(b',"checksum":"' + members["checksum"].encode() + b'"}')
    assert b"\n" not in body


# -- the chain ----------------------------------------------------------------------------------


def chain_of(counts: tuple[int, ...] = (2, 1, 3, 2)) -> list[Sealed]:
    scribe = Scribe(SHARD)
    return [scribe.seal(count) for count in counts]


def refused(chain: Chain, body: bytes) -> Corrupt:
    before = (chain.last, chain.link, chain.epoch)
    with pytest.raises(Corrupt) as caught:
        chain.accept(body)
    assert (chain.last, chain.link, chain.epoch) == before, "a refusal moves nothing"
    return caught.value


def test_a_chain_takes_what_follows_and_says_where_it_is() -> None:
    sealed = chain_of()
    chain = Chain(SHARD)
    read: list[Envelope] = list(chain.accept_all(one.body for one in sealed))
    assert [(e.first, e.last) for e in read] == [(1, 2), (3, 3), (4, 6), (7, 8)]
    assert (chain.last, chain.link, chain.epoch) == (8, sealed[-1].checksum, 1)


@pytest.mark.parametrize("following", [0, 2, 3])
def test_a_gap_a_repeat_and_a_jump_are_refused_at_the_sequence_that_is_missing(
    following: int,
) -> None:
    sealed = chain_of()
    chain = Chain(SHARD)
    chain.accept(sealed[0].body)
    assert refused(chain, sealed[following].body).sequence == 3


def test_an_envelope_of_another_past_is_refused() -> None:
    one, other = chain_of(), Scribe(SHARD, time=5_000)
    cut_in = [other.seal(count) for count in (2, 1)]
    chain = Chain(SHARD)
    chain.accept(one[0].body)
    assert "follows checksum" in refused(chain, cut_in[1].body).message


def test_a_first_envelope_that_follows_something_is_refused() -> None:
    body = resealed(chain_of()[0].body, replaced(b'"prev":""', b'"prev":"77"'))
    assert refused(Chain(SHARD), body).sequence == 1


def test_an_epoch_that_falls_is_refused() -> None:
    scribe = Scribe(SHARD, epoch=5)
    first = scribe.seal(2)
    late = scribe.rival(epoch=4).seal()
    chain = Chain(SHARD)
    chain.accept(first.body)
    assert "epoch 4 after epoch 5" in refused(chain, late.body).message


def test_where_the_link_was_pruned_away_the_first_envelope_is_taken_on_its_own_word() -> None:
    sealed = chain_of()
    chain = Chain(SHARD, last=3, link=None)
    assert [e.last for e in chain.accept_all(one.body for one in sealed[2:])] == [6, 8]
    assert refused(Chain(SHARD, last=3, link="0"), sealed[2].body).sequence == 4


def test_sealing_nothing_or_with_other_counts_is_our_own_bug() -> None:
    started: Record = EpochStarted(1, "node", "origin", Rules())
    wrong: list[tuple[list[Record], tuple[list[int], list[int]]]] = [
        ([], ([], [])),
        ([started], ([], [0])),
        ([started, Enqueued(1, Payload("t", "x"))], ([0, 1], [0])),
    ]
    for records, depths in wrong:
        with pytest.raises(AssertionError):
            seal(records, depths, head=(SHARD, 1, "node"), first=1, time=1, prev="")
