"""The heart: beats what is due, believes no lease whose time is up. The clock is moved by hand."""

import asyncio
from collections.abc import Iterator, Sequence
from threading import Condition, Event
from typing import Any

import pytest

import omnirelay
from omnirelay.lease.answers import Beat, Beats
from omnirelay.mesh.calls import Outcome
from omnirelay.model.errors import OmniRelayError, Overloaded, StaleToken, Unavailable
from omnirelay.model.items import Token
from omnirelay.sdk.heart import Heart
from omnirelay.sdk.lost import Lost
from omnirelay.testing.clock import HandClock

LEASE_MS = 900
SHORT = omnirelay.QueueOptions(lease_duration_ms=300)
TAKEN = Beats((Beat(0, LEASE_MS),))


class Patient:
    """A lease as the heart sees it."""

    def __init__(self, number: int, clock: HandClock, *, renews: bool = True) -> None:
        self.token = Token(number, 1, f"{number:032x}")
        self.lost = Lost()
        self.lease_ms = LEASE_MS
        self.heartbeat_ms = LEASE_MS // 3
        self.renewed_at_ms = clock.now_ms
        self.renews = renews
        self.is_over = False
        self.beats_in = -1


class Answering:
    """A link whose heartbeats the test answers."""

    def __init__(self) -> None:
        self.answer: Outcome = TAKEN
        self.raises: OmniRelayError | None = None
        self.meanwhile: Any = None
        self.beats: list[list[int]] = []
        self._grown = Condition()

    def beat(self, tokens: Sequence[Token], timeout_s: float) -> Sequence[Outcome]:
        if self.meanwhile is not None:
            self.meanwhile()
        with self._grown:
            self.beats.append([token.sequence_id for token in tokens])
            self._grown.notify_all()
        if self.raises is not None:
            raise self.raises
        return [self.answer] * len(tokens)

    def has_beaten(self, times: int) -> bool:
        with self._grown:
            return self._grown.wait_for(lambda: len(self.beats) >= times, 10)


class Ward:
    def __init__(self) -> None:
        self.clock = HandClock()
        self.link = Answering()
        self.heart = Heart(self.link, self.clock)  # type: ignore[arg-type]

    def admit(self, *numbers: int, renews: bool = True) -> list[Patient]:
        patients = [Patient(number, self.clock, renews=renews) for number in numbers]
        self.heart.add(patients)
        return patients

    def pass_ms(self, ms: int) -> None:
        self.clock.now_ms += ms
        with self.heart._changed:
            self.heart._changed.notify()


@pytest.fixture
def ward() -> Iterator[Ward]:
    ward = Ward()
    yield ward
    ward.heart.stop()


def is_lost(patient: Patient) -> bool:
    return patient.lost.wait_blocking(10)


def test_leases_due_together_beat_together(ward: Ward) -> None:
    ward.admit(1, 2, 3)
    ward.pass_ms(LEASE_MS // 3)
    assert ward.link.has_beaten(1)
    assert ward.link.beats[0] == [1, 2, 3]


def test_a_renewed_lease_beats_again(ward: Ward) -> None:
    (patient,) = ward.admit(1)
    for times in (1, 2, 3):
        ward.pass_ms(LEASE_MS // 3)
        assert ward.link.has_beaten(times)
    assert not patient.lost.is_set()


def test_a_lease_that_is_over_beats_no_more(ward: Ward) -> None:
    first, _ = ward.admit(1, 2)
    first.is_over = True
    ward.heart.remove(first)
    ward.pass_ms(LEASE_MS // 3)
    assert ward.link.has_beaten(1)
    assert ward.link.beats[0] == [2]


def test_a_refused_heartbeat_is_a_lost_lease(ward: Ward) -> None:
    (patient,) = ward.admit(1)
    ward.link.answer = StaleToken(1, "it was granted again", 9)
    ward.pass_ms(LEASE_MS // 3)
    assert is_lost(patient)
    assert "granted again" in (patient.lost.reason or "")


def test_a_refusal_that_comes_after_the_end_says_nothing_new(ward: Ward) -> None:
    first, second = ward.admit(1, 2)
    ward.link.answer = StaleToken(1, "it is finished")
    ward.link.meanwhile = lambda: setattr(first, "is_over", True)
    ward.pass_ms(LEASE_MS // 3)
    assert is_lost(second)
    assert not first.lost.is_set()


@pytest.mark.parametrize("trouble", [Unavailable("recovering"), Overloaded("slow down")])
def test_a_heartbeat_that_nobody_refused_is_tried_again(
    ward: Ward, trouble: OmniRelayError
) -> None:
    (patient,) = ward.admit(1)
    ward.link.answer = trouble
    ward.pass_ms(LEASE_MS // 3)
    assert ward.link.has_beaten(1)
    ward.link.answer = TAKEN
    ward.pass_ms(LEASE_MS // 3)
    assert ward.link.has_beaten(2)
    assert not patient.lost.is_set()


def test_a_link_that_fails_altogether_is_tried_again(ward: Ward) -> None:
    (patient,) = ward.admit(1)
    ward.link.raises = Unavailable("no answer in time")
    ward.pass_ms(LEASE_MS // 3)
    assert ward.link.has_beaten(1)
    ward.link.raises = None
    ward.pass_ms(LEASE_MS // 3)
    assert ward.link.has_beaten(2)
    assert not patient.lost.is_set()


def test_a_lease_is_given_up_when_its_time_is_up_though_nobody_said_no(ward: Ward) -> None:
    (patient,) = ward.admit(1)
    ward.link.answer = Unavailable("recovering")
    ward.pass_ms(LEASE_MS)
    assert is_lost(patient)
    assert "not renewed in time" in (patient.lost.reason or "")


def test_a_lease_without_renewal_is_never_beaten_and_lost_in_time(ward: Ward) -> None:
    (patient,) = ward.admit(1, renews=False)
    ward.admit(2)
    ward.pass_ms(LEASE_MS // 3)
    assert ward.link.has_beaten(1)
    assert not patient.lost.is_set()
    ward.pass_ms(LEASE_MS)
    assert is_lost(patient)
    assert all(beat == [2] for beat in ward.link.beats)


def test_a_stopped_heart_gives_up_what_it_kept_and_what_comes_later() -> None:
    ward = Ward()
    (kept,) = ward.admit(1)
    ward.heart.stop()
    (late,) = ward.admit(2)
    assert kept.lost.is_set()
    assert late.lost.is_set()


def test_a_lease_that_ends_during_the_stop_is_not_called_lost() -> None:
    ward = Ward()
    (patient,) = ward.admit(1)
    patient.is_over = True
    ward.heart.stop()
    assert not patient.lost.is_set()


def test_lost_keeps_its_first_reason() -> None:
    lost = Lost()
    assert repr(lost) == "Lost(no)"
    assert not lost.wait_blocking(0)
    lost.set("first")
    lost.set("second")
    assert lost.reason == "first"
    assert repr(lost) == "Lost('first')"


async def test_a_watcher_whose_loop_has_ended_hurts_nobody() -> None:
    lost, watching = Lost(), Event()

    async def watch() -> None:
        task = asyncio.ensure_future(lost.wait())
        await asyncio.sleep(0)
        watching.set()
        task.cancel()

    await asyncio.to_thread(asyncio.run, watch())
    assert watching.is_set()
    lost.set("gone")
    assert lost.is_set()


async def test_closing_waits_for_the_heart_without_blocking_the_loop() -> None:
    async with omnirelay.connect("memory:", options=SHORT) as relay:
        await relay.enqueue("table", "a")
        beating, may_answer = Event(), Event()
        beat = relay._link.beat

        def held_up(tokens: Sequence[Token], timeout_s: float) -> Sequence[Outcome]:
            beating.set()
            assert may_answer.wait(10), "the loop never ran again"
            return beat(tokens, timeout_s)

        relay._link.beat = held_up  # type: ignore[method-assign]
        await relay.lease()
        assert await asyncio.to_thread(beating.wait, 10)
        asyncio.get_running_loop().call_later(0, may_answer.set)
        await relay.close()
