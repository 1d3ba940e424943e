"""Who may keep journals at a hub: peers of the hub and of the queue, proved by token or by
certificate."""

from pathlib import Path

import pytest

from omnirelay.identity.certificates import CertificateSettings
from omnirelay.identity.policy import GrantSettings, Role
from omnirelay.identity.settings import IdentitySettings
from omnirelay.identity.tls import TlsSettings
from omnirelay.journal.backend import JournalBackend
from omnirelay.model.errors import InvalidOption, OmniRelayError, Unavailable
from omnirelay.stores.registry import open_address
from omnirelay.testing.authority import Authority
from omnirelay.testing.envelopes import Scribe
from tests.wire.guarded_node import OPERATOR, PEER, Guard
from tests.wire.real_node import node

PEERS = (
    GrantSettings(role=Role.PEER, principals=(PEER,), namespaces=("hub", "orders")),
    GrantSettings(role=Role.PEER, principals=("pam",), namespaces=("orders",)),
    GrantSettings(role=Role.OPERATOR, principals=(OPERATOR,), namespaces=("*",)),
)


async def _tried(journal: JournalBackend) -> OmniRelayError | None:
    try:
        await journal.open()
        await journal.append(Scribe(journal.shard).seal(2), expected=0)
    except OmniRelayError as error:
        return error
    finally:
        await journal.close()
    return None


async def test_only_a_peer_of_the_hub_and_of_the_queue_keeps_its_journal_there(
    tmp_path: Path,
) -> None:
    guard = Guard(tmp_path)
    identity = guard.identity(roles=PEERS)
    async with node(hub=True, journal=None, data=str(tmp_path), identity=identity) as opened:
        place = opened.urls["grpc"].partition("://")[2]

        async def tried(who: str, shard: str) -> str | None:
            (tmp_path / "token").write_text(f"{guard.token(who)}\n")
            url = f"hub://{place}?token_file={tmp_path}/token"
            error = await _tried(open_address(url, shard).journal)
            assert error is None or isinstance(error, Unavailable)
            return None if error is None else error.message.partition(": ")[2]

        assert await tried(PEER, "orders") is None
        assert await tried(PEER, "payments") == "pia may not open in payments"
        assert await tried("pam", "orders") == "pam may not open in hub"
        assert await tried(OPERATOR, "orders") == "otto may not open in hub"
        nobody = await _tried(open_address(f"hub://{place}", "orders").journal)
        assert isinstance(nobody, Unavailable)
        assert "refuses us" in nobody.message
        gone = await _tried(open_address(f"hub://{place}?token_file=no/such", "orders").journal)
        assert isinstance(gone, Unavailable)
        assert gone.message.endswith("no/such: No such file or directory")
    assert sorted(path.name for path in (tmp_path / "hub").glob("*.db")) == ["orders.db"]


async def test_over_tls_a_certificate_proves_the_node_and_the_hub_proves_itself(
    tmp_path: Path,
) -> None:
    authority, who = Authority(), "spiffe://prod.example/node/1"
    ca = tmp_path / "ca.pem"
    ca.write_bytes(authority.pem)
    other = tmp_path / "other.pem"
    other.write_bytes(Authority().pem)
    server = authority.issue("node", ["localhost", "127.0.0.1"], usage="server")
    cert, key = server.write(tmp_path, "server")
    mine = authority.issue("one", [who]).write(tmp_path, "mine")
    identity = IdentitySettings(
        tls=TlsSettings(
            cert_file=cert,
            key_file=key,
            client_ca_file=str(ca),
            require_client_certificate=True,
        ),
        certificates=CertificateSettings(trust_domains=("prod.example",)),
        roles=(GrantSettings(role=Role.PEER, principals=(who,), namespaces=("hub", "orders")),),
    )
    async with node(hub=True, journal=None, data=str(tmp_path), identity=identity) as opened:
        place = opened.urls["grpc"].partition("://")[2]
        shown = f"cert_file={mine[0]}&key_file={mine[1]}"
        urls = {
            "right": f"hubs://{place}?ca_file={ca}&{shown}",
            "no certificate": f"hubs://{place}?ca_file={ca}",
            "another authority": f"hubs://{place}?ca_file={other}&{shown}",
            "no TLS": f"hub://{place}",
        }
        found = {
            name: await _tried(open_address(url, "orders").journal) for name, url in urls.items()
        }
    assert found.pop("right") is None
    assert {type(error) for error in found.values()} <= {Unavailable}, found


@pytest.mark.parametrize(
    ("rest", "why"),
    [
        ("hub://h:1?ca_file=x", "hub:// has no TLS"),
        ("hubs://h:1?cert_file=x", "needs cert_file and key_file"),
        ("hubs://h:1?surprise=1", "'surprise' is no option"),
        ("hub://h:1?token_file=a&token_file=b", "comes twice"),
        ("hub://h:1/path", "is no hub's address"),
        ("hub://me:secret@h:1", "is no hub's address"),
        ("hub://:1", "is no hub's address"),
        ("hub://h:99999", "is no hub's address"),
    ],
)
def test_an_address_that_cannot_be_one_is_refused(rest: str, why: str) -> None:
    with pytest.raises(InvalidOption, match=why) as caught:
        open_address(rest, "orders")
    assert "secret" not in caught.value.message
