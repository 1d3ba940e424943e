"""`omnirelay explain` says why an item is not moving, and what to do."""

import pytest

from tests.cli.nodes import Running, token_of

pytestmark = pytest.mark.timeout(60)
OWN = ("--namespace", "own")
SERIAL = ("--namespace", "serial")


def test_an_item_nobody_asks_for(node: Running) -> None:
    node("enqueue", "table", "waiting", *OWN)
    said = node("explain", "1", *OWN)
    assert said.code == 0
    assert "table/waiting: ready" in said.out
    assert "no worker asks for type 'table'" in said.out
    assert f"omnirelay lease --type table --url {node.urls['http']} --namespace own" in said.out
    assert "Enqueue" in said.out
    whole = node("explain", *OWN)
    assert "1 item could run, no lease is out" in whole.out


def test_a_leased_item_names_its_holder_and_fence(node: Running) -> None:
    token = token_of(node("lease", "--peer", "w-7", "--json", *OWN))
    said = node("explain", "table", "waiting", "--json", *OWN).json()
    assert said["state"] == "leased"
    facts = said["facts"]
    assert isinstance(facts, dict)
    assert facts["holder"] == "w-7 (principal anonymous)"
    assert set(facts) >= {"held for", "deadline", "fence", "attempt", "enqueued"}
    assert "left (not renewed yet)" in str(said["summary"])
    failed = node("fail", token, "--reason", "no \x1b[31mluck", "--delay", "600", *OWN)
    assert failed.code == 0


def test_a_delayed_item_says_until_when_and_why(node: Running) -> None:
    said = node("explain", "1", *OWN)
    assert "It is delayed after its last attempt failed: it may be leased at" in said.out
    assert "last error     no  [31mluck" in said.out, "without what steers a terminal"
    assert "attempt        2" in said.out


def test_a_parked_item_names_the_one_before_it(node: Running) -> None:
    for _ in range(2):
        node("enqueue", "table", "hot", *SERIAL)
    node("lease", "--peer", "w-1", *SERIAL)
    said = node("explain", "2", *SERIAL)
    assert "It is parked behind item 1 of the same resource, which w-1" in said.out
    assert "omnirelay explain 1" in said.out


def test_a_dead_item_names_the_command_that_redrives_it(node: Running) -> None:
    node("enqueue", "table", "x", "--namespace", "dead")
    token = token_of(node("lease", "--json", "--namespace", "dead"))
    node("fail", token, "--reason", "broken", "--dead-letter", "--namespace", "dead")
    said = node("explain", "1", "--namespace", "dead")
    assert "given up after 1 attempt: broken" in said.out
    assert "omnirelay deadletters redrive 1" in said.out


def test_an_item_that_is_gone_is_found_in_the_journal(node: Running) -> None:
    node("enqueue", "table", "done")
    node("complete", token_of(node("lease", "--peer", "w-2", "--json")))
    said = node("explain", "1")
    assert said.code == 0
    assert "It is done: " in said.out
    never = node("explain", "4711")
    assert never.code == 1
    assert "item 4711 is not in the queue" in never.complaint


def test_backpressure_is_named(node: Running) -> None:
    full = ("--namespace", "full")
    codes = [node("enqueue", "table", f"t{n}", *full).code for n in range(5)]
    assert codes[0] == 0
    assert codes[-1] == 1
    assert "enqueue is paused" in node("explain", "1", *full).out
    assert "Enqueue is paused by backpressure" in node("explain", *full).out
