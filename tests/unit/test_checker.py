"""Each rule lets a good history pass and catches the smallest bad one."""

from typing import Any

import pytest

from omnirelay.testing.checker import Op, check, check_conservation, check_prefix

TTL_S = 30.0


class Story:
    """Writes down what clients saw and, unless told not to, what the journal holds of it."""

    def __init__(self) -> None:
        self.history: list[Op] = []
        self.journal: list[dict[str, Any]] = []

    def log(self, event_type: str, **fields: Any) -> None:
        number = len(self.journal) + 1
        self.journal.append({"sequenceNumber": number, "eventType": event_type, **fields})

    def op(self, kind: Any, at: float, **fields: Any) -> Op:
        known = {"worker": "ann", "returned": at + 0.1, "ok": True}
        self.history.append(Op(kind=kind, called=at, **{**known, **fields}))
        return self.history[-1]

    def enqueue(self, item: int = 1, *, at: float = 0.0, logged: int = 1, **fields: Any) -> Op:
        for _ in range(logged):
            payload = {"requestId": fields.get("request_id")}
            self.log("Enqueue", sequenceId=item, attempt=1, payload=payload)
        return self.op("enqueue", at, **{"sequence_id": item, **fields})

    def lease(self, attempt: int = 1, *, at: float, item: int = 1, **fields: Any) -> Op:
        fence = len(self.journal) + 1
        token = {"sequence_id": item, "attempt": attempt, "fence": fence, "lease_id": f"L-{fence}"}
        op = self.op("lease", at, **{**token, "expires": TTL_S, **fields})
        self.log_token("LeaseGranted", op)
        return op

    def act(self, kind: Any, grant: Op, *, at: float, logged: bool = True, **fields: Any) -> Op:
        token: dict[str, Any] = {"sequence_id": grant.sequence_id, "attempt": grant.attempt}
        token |= {"fence": grant.fence, "lease_id": grant.lease_id, "worker": grant.worker}
        op = self.op(kind, at, **{**token, **fields})
        if logged and kind == "heartbeat":
            self.log("Heartbeat", items=[{"sequenceId": op.sequence_id, "fence": op.fence}])
        elif logged:
            self.log_token({"complete": "Completed", "fail": "Failed"}.get(kind, "Released"), op)
        return op

    def log_token(self, event_type: str, op: Op) -> None:
        token = {"sequenceId": op.sequence_id, "attempt": op.attempt, "leaseId": op.lease_id}
        item = {"sequenceId": op.sequence_id, "attempt": op.attempt, "fence": op.fence}
        self.log(event_type, **item, ownership=token)

    def rules(self, *, skew_s: float = 0.0) -> list[str]:
        return [violation.rule for violation in check(self.history, self.journal, skew_s=skew_s)]


UNKNOWN: dict[str, Any] = {"ok": None, "returned": None}


@pytest.fixture
def story() -> Story:
    """One item, waiting."""
    story = Story()
    story.enqueue()
    return story


def test_a_whole_correct_history_passes(story: Story) -> None:
    first = story.lease(at=1)
    story.act("heartbeat", first, at=20, expires=TTL_S)
    story.act("fail", first, at=25)
    second = story.lease(2, at=26, worker="bob")
    story.act("release", second, at=27)
    third = story.lease(2, at=28)
    story.op("heartbeat", 60, sequence_id=1, attempt=2, lease_id=first.lease_id, ok=False)
    fourth = story.lease(3, at=59, worker="bob")
    story.act("complete", fourth, at=61)
    story.act("complete", third, at=62, ok=False, logged=False)
    assert story.rules() == []
    assert check_conservation(story.journal) == check([], []) == []


@pytest.mark.parametrize(("first_at", "second_at"), [(40, 1), (1, 40)])
def test_r1_catches_a_fence_or_an_attempt_that_goes_back(
    story: Story, first_at: float, second_at: float
) -> None:
    story.lease(2, at=first_at)
    story.lease(1, at=second_at)
    assert "R1" in story.rules()


def test_r1_leaves_grants_alone_that_overlap(story: Story) -> None:
    story.lease(2, at=1, returned=50.0)
    story.lease(1, at=40, returned=50.0)
    assert story.rules() == []


def test_r2_catches_a_fence_granted_twice(story: Story) -> None:
    story.enqueue(2)
    story.lease(at=1, fence=7)
    story.lease(at=1, item=2, fence=7)
    assert story.rules() == ["R2"]


def test_r2_catches_an_attempt_granted_twice(story: Story) -> None:
    story.lease(at=1, returned=90.0)
    story.lease(at=40, returned=90.0)
    assert story.rules() == ["R2"]


@pytest.mark.parametrize("told", [{"logged": True}, {"logged": False, **UNKNOWN}, None])
def test_r2_lets_a_released_attempt_be_granted_again(story: Story, told: Any) -> None:
    grant = story.lease(at=1)
    if told is None:
        story.log_token("Released", grant)  # nobody saw it, the journal has it
    else:
        story.act("release", grant, at=2, **told)
    story.lease(at=3)
    assert story.rules() == []


def test_r2_is_not_excused_by_a_release_of_another_grant_or_a_refused_one(story: Story) -> None:
    story.act("release", story.lease(at=1, returned=99.0), at=42, ok=False, logged=False)
    story.act("release", story.lease(at=40, returned=99.0), at=41)
    assert story.rules() == ["R2"]


def test_r3_catches_two_tokens_that_complete_one_item(story: Story) -> None:
    first = story.lease(at=1)
    second = story.lease(2, at=40, returned=42.0)
    story.act("complete", first, at=41)
    story.act("complete", second, at=43)
    assert story.rules() == ["R3"]


def test_r3_lets_one_token_complete_twice(story: Story) -> None:
    grant = story.lease(at=1)
    story.act("complete", grant, at=2)
    story.act("complete", grant, at=3, logged=False)
    assert story.rules() == []


@pytest.mark.parametrize("kind", ["heartbeat", "complete", "fail", "release"])
def test_r4_catches_what_is_done_under_a_superseded_token(story: Story, kind: str) -> None:
    first = story.lease(at=1)
    story.lease(2, at=40)
    story.act(kind, first, at=41)
    assert story.rules() == ["R4"]


@pytest.mark.parametrize("kind", ["heartbeat", "complete", "fail", "release"])
@pytest.mark.parametrize("lie", [{"lease_id": "L-forged"}, {"attempt": 9}, {"worker": "eve"}])
def test_r4_catches_a_forged_token_and_a_foreign_holder(story: Story, kind: str, lie: Any) -> None:
    story.act(kind, story.lease(at=1), at=2, **lie)
    assert story.rules() == ["R4"]


def test_r4_catches_a_wrong_fence_and_a_use_before_the_grant(story: Story) -> None:
    story.act("heartbeat", story.lease(at=1), at=2, fence=99)
    story.act("heartbeat", story.lease(2, at=60), at=50)
    assert story.rules() == ["R4", "R4"]


def test_r4_lets_a_token_be_used_while_the_newer_grant_is_on_its_way(story: Story) -> None:
    first = story.lease(at=1)
    story.lease(2, at=40, returned=45.0)
    story.act("heartbeat", first, at=44, fence=None, expires=0.5)
    assert story.rules() == []


def test_r4_lets_a_failure_be_answered_again_but_not_happen_late(story: Story) -> None:
    first = story.lease(at=1)
    story.act("fail", first, at=2)
    story.lease(2, at=3)
    story.act("fail", first, at=4, logged=False)
    assert story.rules() == []


def test_r4_believes_the_journal_where_the_reply_to_the_lease_was_lost(story: Story) -> None:
    story.op("lease", 1, request_id="q", **UNKNOWN)
    lost = Op(kind="lease", worker="ann", called=1, sequence_id=1, attempt=1, lease_id="L", fence=2)
    story.log_token("LeaseGranted", lost)
    story.act("complete", lost, at=3)
    assert story.rules() == []


def test_lease_ids_are_compared_without_their_dashes(story: Story) -> None:
    grant = story.lease(at=1, lease_id="AB-CD")
    story.act("complete", grant, at=2, lease_id="abcd")
    assert story.rules() == []


def test_r5_catches_a_grant_after_the_completion_returned(story: Story) -> None:
    story.act("complete", story.lease(at=1), at=2)
    story.lease(2, at=40)
    assert story.rules() == ["R5"]


def test_r3_and_r5_do_not_count_refused_and_unknown_completions(story: Story) -> None:
    story.act("complete", story.lease(at=1), at=2, logged=False, **UNKNOWN)
    story.act("complete", story.lease(2, at=40), at=41, logged=False, ok=False)
    story.act("complete", story.lease(3, at=80), at=81)
    assert story.rules() == []


@pytest.mark.parametrize(("at", "skew_s", "rules"), [(30, 0, 1), (30, 1.5, 0), (31, 0, 0)])
def test_r6_holds_a_lease_for_its_time_from_the_call(
    story: Story, at: float, skew_s: float, rules: int
) -> None:
    story.lease(at=1)
    story.lease(2, at=at)
    assert story.rules(skew_s=skew_s) == ["R6"] * rules


@pytest.mark.parametrize(("at", "rules"), [(45, ["R6"]), (50, [])])
def test_r6_counts_from_the_last_heartbeat(story: Story, at: float, rules: list[str]) -> None:
    story.act("heartbeat", story.lease(at=1), at=20, expires=TTL_S)
    story.lease(2, at=at)
    assert story.rules() == rules


def test_r6_does_not_count_a_heartbeat_without_an_answer(story: Story) -> None:
    story.act("heartbeat", story.lease(at=1), at=20, logged=False, expires=TTL_S, **UNKNOWN)
    story.lease(2, at=32)
    assert story.rules() == []


@pytest.mark.parametrize("outcome", [{}, UNKNOWN])
def test_r6_ends_when_the_holder_fails_or_perhaps_fails(story: Story, outcome: Any) -> None:
    story.act("fail", story.lease(at=1), at=2, logged=not outcome, **outcome)
    story.lease(2, at=3)
    assert story.rules() == []


@pytest.mark.parametrize("is_held", [True, False])
def test_r6_ends_with_a_drain_but_not_with_an_older_one(is_held: bool) -> None:
    story = Story()  # the item comes from another node
    if is_held:
        story.lease(at=1, fence=1_000)
    story.log("DrainSnapshot", items=[{"sequenceId": 1, "attempt": 2}])
    story.log("RestoreSnapshot", items=[{"sequenceId": 1, "attempt": 2}])
    if not is_held:
        story.lease(at=1, fence=1_000)
    story.lease(2, at=3, fence=1_001)  # a restore may set fences ahead of the numbers
    assert story.rules() == ([] if is_held else ["R6"])


def test_r7_catches_an_acknowledged_enqueue_that_is_journaled_twice() -> None:
    story = Story()
    story.enqueue(logged=2)
    assert story.rules() == ["R7"]


def test_r7_catches_a_grant_that_nobody_asked_for() -> None:
    story = Story()
    story.op("enqueue", 0, ok=False)
    story.lease(at=1)
    story.enqueue(at=5)
    assert story.rules() == ["R7"]


@pytest.mark.parametrize(("asked", "rules"), [(None, []), ("r", []), ("other", ["R7"])])
def test_r7_lets_a_grant_follow_its_unanswered_enqueue(asked: str | None, rules: list[str]) -> None:
    story = Story()
    story.enqueue(sequence_id=None, request_id=asked, **UNKNOWN)
    story.journal[0]["payload"] = {"requestId": asked and "r"}
    story.lease(at=1)
    assert story.rules() == rules


LOST: dict[str, Any] = {"sequence_id": None, **UNKNOWN}


@pytest.mark.parametrize(
    ("first", "second", "rules"),
    [
        ({}, {"logged": 0, "duplicate": True}, []),
        (LOST, {"logged": 0, "duplicate": True}, []),
        ({}, {"logged": 0}, ["R8"]),  # the repeat is not called one
        (LOST, {"item": 2}, ["R8"]),  # only the journal shows it
        ({}, {"item": 2, "duplicate": True}, ["R8", "R8"]),
    ],
)
def test_r8_gives_one_enqueue_request_one_answer(first: Any, second: Any, rules: Any) -> None:
    story = Story()
    story.enqueue(request_id="r", **first)
    story.enqueue(request_id="r", at=1, **second)
    assert story.rules() == rules


def test_r8_catches_a_lease_request_with_two_answers(story: Story) -> None:
    story.enqueue(2)
    story.lease(at=1, request_id="q")
    story.lease(at=2, item=2, request_id="q")
    assert story.rules() == ["R8"]


def test_a_repeated_lease_request_is_one_grant_held_from_the_first_call(story: Story) -> None:
    story.op("lease", 1, request_id="q", **UNKNOWN)
    grant = story.lease(at=20, request_id="q")
    again = {"attempt": 1, "lease_id": grant.lease_id, "fence": grant.fence, "expires": TTL_S}
    story.op("lease", 25, sequence_id=1, request_id="q", **again)
    story.lease(2, at=32)
    assert story.rules() == []


def test_the_repeat_of_a_batch_names_what_is_still_held(story: Story) -> None:
    story.enqueue(2)
    story.lease(at=1, request_id="q")
    kept = story.lease(at=1, item=2, request_id="q")
    again = {"attempt": 1, "lease_id": kept.lease_id, "fence": kept.fence}
    story.op("lease", 9, sequence_id=2, request_id="q", **again)
    assert story.rules() == []


def test_j1_lets_journals_be_prefixes_of_one_and_catches_one_that_strays(story: Story) -> None:
    story.lease(at=1)
    strayed = [story.journal[0], {**story.journal[1], "epoch": 2}]
    assert check_prefix([story.journal, story.journal[:1], []]) == check_prefix([]) == []
    assert [found.rule for found in check_prefix([story.journal, strayed])] == ["J1"]


@pytest.mark.parametrize(
    ("numbers", "rules"), [([5, 6, 7], []), ([1, 3], ["J2"]), ([1, 1], ["J2"])]
)
def test_j2_catches_gaps_and_repeats(numbers: list[int], rules: list[str]) -> None:
    journal = [{"sequenceNumber": number, "eventType": "EpochStarted"} for number in numbers]
    assert [found.rule for found in check([], journal)] == rules


@pytest.mark.parametrize("lost", ["LeaseGranted", "Heartbeat", "Failed", "Released", "Completed"])
def test_j3_catches_whatever_is_acknowledged_and_not_in_the_journal(
    story: Story, lost: str
) -> None:
    first = story.lease(at=1)
    story.act("heartbeat", first, at=2)
    story.act("release", first, at=3)
    story.act("fail", story.lease(at=4), at=5)
    story.act("complete", story.lease(2, at=6), at=7)
    assert story.rules() == []
    for event in story.journal:
        event["eventType"] = event["eventType"].replace(lost, "EpochStarted")
    assert set(story.rules()) == {"J3"}


def test_j3_catches_an_enqueue_and_a_grant_under_another_fence(story: Story) -> None:
    story.lease(at=1)
    story.journal[1]["fence"] = 99
    assert story.rules() == ["J3"]
    del story.journal[0]
    assert "J3" in story.rules()


@pytest.mark.parametrize(
    ("events", "rules"),
    [
        ("Refused Enqueue LeaseGranted Heartbeat Expired LeaseGranted Completed Refused", []),
        ("Enqueue LeaseGranted Failed+ Redriven LeaseGranted Expired+ Purged", []),
        ("Enqueue DrainSnapshot RestoreSnapshot LeaseGranted Completed", []),
        ("Enqueue Failed+ DrainSnapshot+ RestoreSnapshot+ Redriven Purged", []),
        ("RestoreSnapshot LeaseGranted Released", []),
        ("LeaseGranted Completed", ["C1"]),
        ("Enqueue Enqueue", ["C1"]),
        ("Enqueue RestoreSnapshot", ["C1"]),
        ("Enqueue Redriven", ["C1"]),
        ("Enqueue DrainSnapshot RestoreSnapshot+ RestoreSnapshot", ["C1"]),
        ("Enqueue Completed Completed", ["C2"]),
        ("Enqueue Failed+ Completed", ["C2"]),
        ("Enqueue DrainSnapshot Completed", ["C2"]),
        ("Enqueue Purged DrainSnapshot", ["C2"]),
        ("Enqueue Completed LeaseGranted Completed", ["C3", "C2"]),
        ("Enqueue Completed Heartbeat", ["C3"]),
        ("Enqueue Failed+ LeaseGranted", ["C3"]),
    ],
)
def test_every_item_begins_once_ends_once_and_rests(events: str, rules: list[str]) -> None:
    """A plus marks what went to, or belongs to, the dead letters."""
    story = Story()
    for word in events.split():
        kind, is_dead = word.rstrip("+"), word.endswith("+")
        item = {"sequenceId": None if kind == "EpochStarted" else 1, "deadLetter": is_dead}
        fields = {"disposition": "deadLettered" if is_dead else "requeued"}
        many = {"DrainSnapshot", "RestoreSnapshot", "Heartbeat", "Redriven", "Purged"}
        story.log(kind, **({"items": [item]} if kind in many else {**item, **fields}))
    assert [found.rule for found in check_conservation(story.journal)] == rules


WHOLE: dict[str, Any] = {"ok": True, "returned": 2.0, "sequence_id": 1}


@pytest.mark.parametrize(
    "wrong",
    [{"returned": None}, {"ok": None}, {"returned": 0.0}, {"sequence_id": None}, {"kind": "lease"}],
)
def test_an_operation_that_cannot_be_judged_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="call"):
        Op(**{"kind": "fail", "worker": "ann", "called": 1.0, **WHOLE, **wrong})
