"""The demo's proofs: true of an honest journal, broken by every lie that is planted in it."""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

from omnirelay.cli import demo
from omnirelay.cli.app import app
from omnirelay.cli.demo_board import Board
from omnirelay.cli.demo_proof import (
    Acknowledged,
    Grant,
    Killed,
    Proof,
    Refusal,
    Witnessed,
    prove,
    prove_kills,
)
from omnirelay.cli.demo_screen import PlainScreen, Screen
from omnirelay.journal.events import Event

WHOLE = "the journal is whole"
ONCE = "every item ended exactly once"
NEWEST = "every completion carries the newest fence of its item"
KEPT = "nothing that was acknowledged is lost, although the node was killed"
DEAD = "the worker that was killed was replaced"
STOPPED = "the worker that was stopped was replaced"
WIRES = ("http", "grpc", "stream")
REFUSED = {f"its stale completion over {wire} was refused" for wire in WIRES}


def event(number: int, kind: str, item: int | None = None, fence: int | None = None) -> Event:
    return Event(
        sequence_number=number,
        event_type=kind,
        timestamp=datetime(2026, 1, 1, tzinfo=UTC),
        shard="s",
        epoch=1 if number < 8 else 2,
        node="n",
        sequence_id=item,
        attempt=1,
        fence=fence,
        metadata={"queue.pending": "0", "queue.active": "0"},
    )


# Item 1 is done before the node is killed; 2 is the dead worker's, 3 the stopped one's.
HONEST = [
    event(1, "EpochStarted"),
    event(2, "Enqueue", 1),
    event(3, "Enqueue", 2),
    event(4, "Enqueue", 3),
    event(5, "LeaseGranted", 1, 5),
    event(6, "Completed", 1, 5),
    event(7, "Heartbeat"),
    event(8, "EpochStarted"),
    event(9, "LeaseGranted", 2, 9),
    event(10, "LeaseGranted", 3, 10),
    event(11, "Expired", 2, 9),
    event(12, "Expired", 3, 10),
    event(13, "LeaseGranted", 2, 13),
    event(14, "Completed", 2, 13),
    event(15, "LeaseGranted", 3, 15),
    event(16, "Completed", 3, 15),
]


def witnessed() -> Witnessed:
    before = Acknowledged({1, 2, 3}, {1: 5})
    return Witnessed(
        node=Killed(before=before, in_hand=0, exit_code=-9),
        told=Acknowledged({1, 2, 3}, {1: 5, 2: 13, 3: 15}),
        dead=Grant(2, 9),
        stopped=Grant(3, 10),
        refusals=[Refusal(wire, "FAILED_PRECONDITION", 15) for wire in WIRES],
    )


def broken(events: Sequence[Event], seen: Witnessed) -> set[str]:
    return {proof.claim for proof in prove(events, seen) if not proof.holds}


def without(*numbers: int) -> list[Event]:
    """The honest journal less these events, numbered anew so that only the story changes."""
    kept = [one for one in HONEST if one.sequence_number not in numbers]
    return renumbered(kept)


def renumbered(events: Sequence[Event]) -> list[Event]:
    return [
        msgspec.structs.replace(one, sequence_number=number)
        for number, one in enumerate(events, start=1)
    ]


def test_an_honest_journal_proves_everything() -> None:
    proofs = prove(HONEST, witnessed())
    assert len(proofs) == 9
    assert all(proof.holds for proof in proofs)


def test_a_refusal_after_an_item_s_end_disproves_nothing() -> None:
    assert broken([*HONEST, event(17, "Refused", 3)], witnessed()) == set()


def test_a_missing_event_breaks_the_whole() -> None:
    assert WHOLE in broken(HONEST[:6] + HONEST[7:], witnessed())


def test_an_item_that_never_ended_is_found() -> None:
    assert ONCE in broken(without(16), witnessed())


def test_an_item_that_ended_twice_is_found() -> None:
    twice = renumbered([*HONEST, event(17, "Completed", 3, 15)])
    assert ONCE in broken(twice, witnessed())


def test_an_item_that_came_back_after_its_end_is_found() -> None:
    again = renumbered([*HONEST, event(17, "LeaseGranted", 3, 17)])
    assert ONCE in broken(again, witnessed())


def test_an_item_that_nobody_was_told_of_is_found() -> None:
    seen = witnessed()
    seen.told.enqueued.discard(3)
    assert broken(HONEST, seen) == {ONCE}


def test_a_completion_with_an_older_fence_is_found() -> None:
    stale = [*HONEST[:15], event(16, "Completed", 3, 10)]
    assert {NEWEST, STOPPED, *REFUSED} <= broken(stale, witnessed())


def test_fences_that_do_not_grow_are_found() -> None:
    swapped = [msgspec.structs.replace(one, fence=4) if one.fence == 13 else one for one in HONEST]
    assert NEWEST in broken(swapped, witnessed())


def test_an_acknowledged_enqueue_that_is_gone_is_found() -> None:
    seen = witnessed()
    seen.told.enqueued.add(77)
    assert broken(HONEST, seen) == {KEPT, ONCE}


def test_an_acknowledged_completion_that_is_gone_is_found() -> None:
    seen = witnessed()
    seen.told.completed[2] = 9
    assert broken(HONEST, seen) == {KEPT}


def test_what_was_acknowledged_before_the_kill_but_written_after_it_is_found() -> None:
    seen = witnessed()
    seen.node.before.completed[2] = 13
    assert broken(HONEST, seen) == {KEPT}


def test_a_node_that_was_not_really_killed_proves_nothing() -> None:
    node = msgspec.structs.replace(witnessed().node, exit_code=0)
    assert broken(HONEST, msgspec.structs.replace(witnessed(), node=node)) == {KEPT}


def test_a_node_that_never_came_back_proves_nothing() -> None:
    assert KEPT in broken(HONEST[:7], witnessed())


def test_an_empty_journal_proves_nothing_of_what_matters() -> None:
    assert {ONCE, KEPT, DEAD, STOPPED, *REFUSED} <= broken([], witnessed())


def test_a_dead_worker_whose_lease_never_expired_is_found() -> None:
    assert DEAD in broken(without(11), witnessed())


@pytest.mark.parametrize(
    "heard",
    [
        Refusal("grpc", "OK", 0),
        Refusal("grpc", "FAILED_PRECONDITION", 10),
        Refusal("grpc", "FAILED_PRECONDITION", 14),
        Refusal("grpc", "NOT_FOUND", 15),
    ],
)
def test_a_zombie_that_was_let_in_or_told_a_wrong_fence_is_found(heard: Refusal) -> None:
    seen = witnessed()
    seen.refusals[1] = heard
    assert broken(HONEST, seen) == {"its stale completion over grpc was refused"}


def test_a_broken_proof_is_printed_and_is_the_exit_code(monkeypatch: pytest.MonkeyPatch) -> None:
    async def play(folder: Path, items: int, screen: Screen, board: Board) -> list[Proof]:
        return [Proof("water is wet", True, "looked"), Proof("pigs fly", False, "none seen")]

    monkeypatch.setattr(demo, "_play", play)
    plain = CliRunner().invoke(app, ["demo", "--no-spark"])
    assert plain.exit_code == 1
    assert "BROKEN  pigs fly: none seen" in plain.output
    assert "1 of 2 proofs hold" in plain.output
    assert "omnirelay dev" in plain.output
    as_json = CliRunner().invoke(app, ["demo", "--no-spark", "--json"])
    assert as_json.exit_code == 1
    assert msgspec.json.decode(as_json.output)["ok"] is False


def test_the_board_knows_who_holds_what(capsys: pytest.CaptureFixture[str]) -> None:
    board, screen = Board(), PlainScreen()
    screen.stage("1: a test", board)
    for one in HONEST[:10]:
        board.see(one)
    assert board.completed == 1
    assert sorted(board.holdings) == [2, 3]
    assert "? holds 2 (fence 9), ? holds 3 (fence 10)" in board.in_words()
    for one in HONEST[10:]:
        board.see(one)
    assert board.holdings == {}
    screen.moved()
    assert "== stage 1" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("gaps_ms", "holds"),
    [
        ([4_000], True),
        ([2_100, 5_900], True),
        ([4_100, 4_200], False),
        ([2_100, 2_200, 6_100], False),
    ],
)
def test_an_owner_that_is_replaced_too_late_breaks_a_proof(gaps_ms: list[int], holds: bool) -> None:
    assert prove_kills(gaps_ms).holds is holds
