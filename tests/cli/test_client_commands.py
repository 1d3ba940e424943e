"""The commands that call a node, against a real one: what they say, and how they end."""

import msgspec
import pytest

from tests.cli.nodes import Running, token_of

pytestmark = pytest.mark.timeout(60)
SECRET = "very-secret-bearer-41"


def test_an_item_goes_through_its_life(node: Running) -> None:
    taken = node("enqueue", "table", "sales.orders", "--body", "vacuum", "--priority", "3")
    assert taken.code == 0
    assert "is in the queue: 1 pending" in taken.out
    leased = node("lease", "--peer", "w-1", "--json")
    assert leased.code == 0
    lease = leased.json()
    assert lease["ownerPeerId"] == "w-1"
    assert msgspec.json.decode(leased.out)["payload"]["body"] == "dmFjdXVt"
    token = token_of(leased)
    assert "is held until" in node("heartbeat", token).out
    assert "is completed" in node("complete", token).out
    assert node("complete", token).code == 0, "to say it again does no harm"
    stats = node("stats", "--json").json()
    assert stats["stats"] == {"pendingCount": 0, "activeLeaseCount": 0}


def test_a_lease_in_words_names_the_next_command(node: Running) -> None:
    node("enqueue", "table", "a", "--body", "x\x1b[31m", "--namespace", "own")
    said = node("lease", "--namespace", "own")
    assert said.code == 0
    assert "table/a  attempt 1  fence" in said.out
    assert "omnirelay complete " in said.out
    assert "\x1b" not in said.out, "a body does not steer the terminal"
    token = next(line.split()[1] for line in said.out.splitlines() if "token" in line)
    assert "back in the queue" in node("release", token, "--namespace", "own").out


def test_a_body_may_come_from_a_file_and_a_request_id_makes_it_one_item(node: Running) -> None:
    (node.folder / "body").write_bytes(bytes(range(256)))
    words = ("enqueue", "report", "r", "--body-file", "body", "--request-id", "once")
    first = node(*words, "--attribute", "k=v=w", "--json").json()
    again = node(*words, "--json").json()
    assert (first["duplicate"], again["duplicate"]) == (False, True)
    assert first["sequenceId"] == again["sequenceId"]
    leased = node("lease", "--type", "report", "--json")
    payload = msgspec.json.decode(leased.out)["payload"]
    assert payload["attributes"] == {"k": "v=w"}
    assert node("complete", token_of(leased)).code == 0


def test_a_given_up_item_is_listed_redriven_and_purged(node: Running) -> None:
    own = ("--namespace", "dead")
    node("enqueue", "table", "bad", *own)
    token = token_of(node("lease", "--json", *own))
    failed = node("fail", token, "--reason", "broken disk", "--dead-letter", "--json", *own)
    assert failed.json()["disposition"] == "deadLettered"
    assert "broken disk" in node("deadletters", "list", *own).out
    assert node("deadletters", "redrive", *own).code == 2, "none is not all"
    assert node("deadletters", "redrive", "--all", "--json", *own).json() == {"count": 1}
    token = token_of(node("lease", "--json", *own))
    assert node("fail", token, "--dead-letter", *own).code == 0
    assert node("deadletters", "purge", "--all", *own).code == 2, "it asks, or wants --yes"
    assert node("deadletters", "purge", "--all", "--yes", *own).code == 0
    assert node("deadletters", "list", "--json", *own).json() == {"items": [], "total": 0}


def test_a_refusal_ends_with_1_and_its_code(node: Running) -> None:
    blank = node("enqueue", " ", "a", "--json")
    assert blank.code == 1
    said = msgspec.json.decode(blank.complaint)
    assert said["code"] == "resourcelease.payload.resource_type_required"
    unknown = node("stats", "--namespace", "nobody")
    assert unknown.code == 1
    stale = node("complete", f"999:1:{'0' * 32}", "--json")
    assert stale.code == 1
    assert msgspec.json.decode(stale.complaint)["code"] == "error.resourcelease.unknown_token"
    nothing = node("lease", "--type", "nobody-makes-these")
    assert (nothing.code, nothing.out) == (1, "")


@pytest.mark.parametrize(
    "words",
    [
        ("complete", "not-a-token"),
        ("complete",),
        ("enqueue", "table"),
        ("enqueue", "table", "a", "--attribute", "nameless"),
        ("enqueue", "table", "a", "--body", "x", "--body-file", "y"),
        ("stats", "--url", "leases.db"),
        ("stats", "--url", "http://user:hunter2@127.0.0.1"),
        ("peers", "--url", "stream://127.0.0.1:1"),
        ("explain", "x"),
        ("explain", "0"),
        ("explain", "a", "b", "c"),
    ],
)
def test_wrong_words_end_with_2(node: Running, words: tuple[str, ...]) -> None:
    ended = node(*words)
    assert ended.code == 2, ended.err
    assert ended.out == ""
    assert "hunter2" not in ended.err


def test_nobody_there_ends_with_3(node: Running) -> None:
    for words in (("stats",), ("peers",)):
        ended = node(*words, "--url", "http://127.0.0.1:9", "--json")
        assert ended.code == 3, ended.err
        assert msgspec.json.decode(ended.complaint)["status"] == "UNAVAILABLE"
    assert node("stats", "--url", "stream://127.0.0.1:9").code == 3


def test_every_wire_gives_the_same_answer(node: Running) -> None:
    answers = [node("stats", "--url", url, "--json").json() for url in node.urls.values()]
    for answer in answers:
        answer.pop("oldestPendingAgeMs", None)
    assert answers[0] == answers[1] == answers[2]


def test_a_token_is_never_shown(node: Running) -> None:
    (node.folder / "secret").write_text(f"{SECRET}\n")
    for words in (
        ("stats", "--token", SECRET),
        ("stats", "--token", SECRET, "--url", "http://127.0.0.1:9"),
        ("peers", "--token", SECRET, "--url", "nowhere"),
        ("stats", "--token", f"{SECRET}\n"),
        ("stats", "--token", SECRET, "--timeout", "x"),
        ("stats", "--token-file", "secret", "--retry", "-"),
        ("stats", "--token", SECRET, "--help"),
    ):
        ended = node(*words)
        assert SECRET not in ended.out + ended.err, words
    shown = node("config", "show", "--json", OMNIRELAY_TOKEN=SECRET)
    assert SECRET not in shown.out
    assert '"key":"client.token","value":"***","source":"env OMNIRELAY_TOKEN"' in shown.out
