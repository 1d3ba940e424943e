"""Several queues on one node: each with its own options and journal, none in another's way."""

import socket
from pathlib import Path

import msgspec
import pytest

from omnirelay.lease.options import QueueOptions
from omnirelay.mesh import wire
from omnirelay.model.errors import (
    JournalOwned,
    QueueFull,
    TooLittleDurability,
    Unavailable,
    Unimplemented,
)
from omnirelay.node.node import Node
from omnirelay.node.run import serve, write_ready_file
from omnirelay.node.settings import NamespaceSettings
from tests.wire.real_node import WIRES, caller, node, node_settings, post, said


@pytest.mark.parametrize("over", WIRES)
async def test_queues_of_one_node_have_their_own_items_and_options(over: str) -> None:
    namespaces = {
        "resourcelease": NamespaceSettings(options=QueueOptions(lease_duration_ms=9_000)),
        "resourcelease.users": NamespaceSettings(
            options=QueueOptions(capacity=1, lease_duration_ms=3_000)
        ),
    }
    async with node(namespaces=namespaces) as opened:
        async with caller(opened, over) as first:
            await first.enqueue("a")
            await first.enqueue("b")
            lease = await first.lease()
        async with caller(opened, over, namespace="resourcelease.users") as second:
            await second.enqueue("u")
            with pytest.raises(QueueFull):
                await second.enqueue("v")
            other = await second.lease()
            await second.enqueue("v")  # the leased one counts no more
        async with caller(opened, over, namespace="nobody") as third:
            with pytest.raises(Unimplemented):
                await third.stats()
    assert (lease.lease_duration_ms, other.lease_duration_ms) == (9_000, 3_000)
    assert (lease.payload.resource_id, other.payload.resource_id) == ("a", "u")
    assert (lease.sequence_id, other.sequence_id) == (1, 1)


async def test_a_token_of_one_queue_means_nothing_in_another() -> None:
    async with node(namespaces={}, namespace=("a", "b")) as opened:
        async with caller(opened, "http", namespace="a") as first:
            await first.enqueue("x")
            token = msgspec.to_builtins((await first.lease()).token)
        answer = await post(opened, "/v1/b/complete", {"ownershipToken": token})
    assert answer.status == 404
    assert said(answer)["code"] == "error.resourcelease.unknown_token"


async def test_every_queue_has_its_own_journal_and_goes_on_with_it(tmp_path: Path) -> None:
    apart = NamespaceSettings(journal=f"sqlite:///{tmp_path}/apart.db")
    for epoch in (1, 2):
        async with node(
            journal=None,
            data=str(tmp_path / "data"),
            namespace=("resourcelease",),
            namespaces={"apart": apart},
        ) as opened:
            for name in ("resourcelease", "apart"):
                async with caller(opened, "stream", namespace=name) as call:
                    await call.enqueue(name)
                    stats = await call.stats()
                    assert (stats.epoch, stats.stats.pending_count) == (epoch, epoch)
    assert (tmp_path / "apart.db").exists()
    assert (tmp_path / "data" / "resourcelease.db").exists()
    assert not (tmp_path / "data" / "apart.db").exists()


async def test_a_node_that_cannot_open_all_of_its_queues_leaves_none_open(tmp_path: Path) -> None:
    good = NamespaceSettings(journal=f"sqlite:///{tmp_path}/good.db")
    demanding = NamespaceSettings(journal="memory:", require="power_loss")
    with pytest.raises(TooLittleDurability):
        async with node(namespaces={"good": good, "demanding": demanding}):
            raise AssertionError("it opened")
    async with (
        node(namespaces={"good": good}) as opened,
        caller(opened, "http", namespace="good") as call,
    ):
        await call.stats()


async def test_two_nodes_do_not_write_one_journal(tmp_path: Path) -> None:
    shared = NamespaceSettings(journal=f"sqlite:///{tmp_path}/one.db")
    async with node(namespaces={"resourcelease": shared}) as opened:
        with pytest.raises(JournalOwned):
            async with node(namespaces={"resourcelease": shared}):
                raise AssertionError("it opened")
        async with caller(opened, "grpc") as call:
            await call.enqueue("a")


async def test_a_door_that_cannot_open_closes_the_others(tmp_path: Path) -> None:
    own = NamespaceSettings(journal=f"sqlite:///{tmp_path}/one.db")
    async with node(grpc="", stream="") as holder:
        taken = holder.urls["http"].removeprefix("http://")
        with pytest.raises(Exception, match="taken"):
            async with Node(node_settings(namespaces={"resourcelease": own}, http=taken)):
                raise AssertionError("it opened")
    async with node(namespaces={"resourcelease": own}) as opened:
        assert opened.trouble is None


async def test_the_ready_file_says_where_and_who(tmp_path: Path) -> None:
    path = tmp_path / "ready.json"
    path.write_text("left by another process")
    async with node() as opened:
        write_ready_file(path, opened)
        told = msgspec.json.decode(path.read_bytes())
    assert told.keys() == {"http", "grpc", "stream", "pid", "nodeId"}
    assert told["nodeId"] == "node-1"
    assert [path.name for path in tmp_path.iterdir()] == ["ready.json"]


async def test_what_a_restart_interrupts_is_still_leased_to_its_holder(tmp_path: Path) -> None:
    own = {"resourcelease": NamespaceSettings(journal=f"sqlite:///{tmp_path}/one.db")}
    async with node(namespaces=own) as opened, caller(opened, "http") as call:
        await call.enqueue("a", request_id="r-1")
        lease = await call.lease(peer_id="w")
    async with node(namespaces=own) as opened, caller(opened, "grpc") as call:
        assert (await call.enqueue("a", request_id="r-1")).duplicate
        assert (await call("complete", wire.TokenRequest(lease.token))).success
        assert (await call.stats()).epoch == 2


def test_a_ready_file_that_another_process_left_goes_before_anything_is_opened(
    tmp_path: Path,
) -> None:
    """Whoever waits for it must not take the old one for the new node's."""
    path = tmp_path / "ready.json"
    path.write_text('{"http":"http://127.0.0.1:1"}')
    with socket.create_server(("127.0.0.1", 0)) as door:
        taken = f"127.0.0.1:{door.getsockname()[1]}"
        with pytest.raises(Unavailable):
            serve(node_settings(http=taken, ready_file=str(path)))
    assert not path.exists()
