"""Who calls stays who calls when a node passes it on; nobody but a node may say who it was."""

from pathlib import Path
from typing import Any

import pytest

from omnirelay.identity.certificates import CertificateSettings
from omnirelay.identity.policy import GrantSettings, Role
from omnirelay.identity.settings import IdentitySettings
from omnirelay.identity.tls import TlsSettings
from omnirelay.mesh import wire
from omnirelay.mesh.neighbours import (
    HelloRequest,
    HelloResponse,
    TakeOverRequest,
    TakeOverResponse,
)
from omnirelay.model.errors import PermissionDenied, Unauthenticated
from omnirelay.rpc.headers import FORWARDED, FORWARDED_PRINCIPAL, FORWARDED_PROOF
from omnirelay.testing.authority import Authority, Issued
from omnirelay.transports.client_tls import Tls
from tests.cluster.pairs import pair
from tests.wire.real_node import NAMESPACE, WIRES, Caller, caller

DOMAIN = "spiffe://prod.example"
WORKER, NODE = f"{DOMAIN}/worker/7", f"{DOMAIN}/node/a"
LIES = {FORWARDED: "1", FORWARDED_PRINCIPAL: f"{DOMAIN}/boss", FORWARDED_PROOF: "ab" * 32}


class Town:
    """An authority, nodes that share a certificate, and a worker that shows its own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        authority = Authority()
        (folder / "ca.pem").write_bytes(authority.pem)
        self.worker = authority.issue("worker", [WORKER])
        self.node = authority.issue("node", ["localhost", "127.0.0.1", NODE])
        self._files = self.node.write(folder, "node")

    def identity(self) -> IdentitySettings:
        cert, key = self._files
        return IdentitySettings(
            tls=TlsSettings(
                cert_file=cert,
                key_file=key,
                client_ca_file=str(self._folder / "ca.pem"),
                require_client_certificate=True,
            ),
            certificates=CertificateSettings(trust_domains=("prod.example",)),
            roles=tuple(
                GrantSettings(role=role, principals=(who,), namespaces=(NAMESPACE,))
                for who, role in (
                    (f"{DOMAIN}/node/*", Role.PEER),
                    (WORKER, Role.WORKER),
                    (WORKER, Role.PRODUCER),
                    (WORKER, Role.OBSERVER),
                )
            ),
        )

    def shows(self, client: Issued) -> dict[str, Any]:
        """Any: see `caller`."""
        cert, key = client.write(self._folder, f"client-{client.thumbprint[:8]}")
        tls = Tls(ca_file=str(self._folder / "ca.pem"), cert_file=cert, key_file=key)
        return {"tls": tls.context, "pem": tls.pem}


@pytest.fixture
def town(tmp_path: Path) -> Town:
    return Town(tmp_path)


async def proved(call: Caller) -> set[tuple[str, str]]:
    """Who enqueued what was enqueued last, and by what proof."""
    await call.enqueue("a")
    lease = await call.lease()
    view = await call("inspect", wire.InspectRequest(sequence_id=lease.sequence_id))
    return {(str(event.principal), event.metadata["principal.proof"]) for event in view.history}


@pytest.mark.parametrize("over", WIRES)
async def test_the_owner_is_told_who_calls(town: Town, tmp_path: Path, over: str) -> None:
    async with (
        pair(tmp_path, scheme="streams", identity=town.identity()) as nodes,
        caller(nodes.follower, over, **town.shows(town.worker)) as call,
    ):
        assert await proved(call) == {(WORKER, town.worker.thumbprint)}


async def test_nodes_know_each_other_by_their_id(town: Town, tmp_path: Path) -> None:
    knowing: dict[str, Any] = {"scheme": "streams", "identity": town.identity()}
    async with (
        pair(tmp_path, server_id=f"{DOMAIN}/node/*", **knowing) as nodes,
        caller(nodes.follower, "stream", **town.shows(town.worker)) as call,
    ):
        assert await proved(call) == {(WORKER, town.worker.thumbprint)}
    with pytest.raises(TimeoutError):
        async with pair(tmp_path, server_id=f"{DOMAIN}/other/*", patience_s=2, **knowing):
            pass


async def test_nobody_but_a_node_is_believed_to_pass_a_call_on(town: Town, tmp_path: Path) -> None:
    async with pair(tmp_path, scheme="streams", identity=town.identity()) as nodes:
        for one in nodes:
            async with caller(one, "stream", headers=LIES, **town.shows(town.worker)) as call:
                assert await proved(call) == {(WORKER, town.worker.thumbprint)}
        named = {**LIES, FORWARDED_PRINCIPAL: WORKER}
        async with caller(nodes.owner, "stream", headers=named, **town.shows(town.node)) as call:
            assert await proved(call) == {(WORKER, "ab" * 32)}
        blank = {**LIES, FORWARDED_PRINCIPAL: " "}
        async with caller(nodes.owner, "stream", headers=blank, **town.shows(town.node)) as call:
            with pytest.raises(Unauthenticated):
                await call.enqueue("a")
        # What the worker may not do, a node may not do in its name either.
        async with caller(nodes.owner, "stream", headers=named, **town.shows(town.node)) as call:
            with pytest.raises(PermissionDenied):
                await call("drain", wire.DrainRequest())


async def test_only_a_node_asks_another_for_its_queues(town: Town, tmp_path: Path) -> None:
    async with pair(tmp_path, scheme="streams", identity=town.identity()) as nodes:
        async with caller(nodes.follower, "stream", **town.shows(town.worker)) as call:
            with pytest.raises(PermissionDenied):
                await call.client.unary("hello", HelloRequest(), HelloResponse)
            with pytest.raises(PermissionDenied):
                await call.client.unary("takeOver", TakeOverRequest(), TakeOverResponse)
        async with caller(nodes.follower, "stream", **town.shows(town.node)) as call:
            hello = await call.client.unary("hello", HelloRequest(), HelloResponse)
        assert hello is not None
        assert (hello.node_id, hello.shards[NAMESPACE].owner) == ("b", "a")
