"""What a node refuses to be told, before it opens anything."""

import re

import pytest

from omnirelay.identity.issuer import IssuerSettings
from omnirelay.identity.settings import IdentitySettings
from omnirelay.model.errors import InvalidOption
from omnirelay.node.settings import (
    LimitSettings,
    MeshSettings,
    NamespaceSettings,
    NodeSettings,
    check,
    place,
)

PROVABLE = IdentitySettings(
    issuers=(
        IssuerSettings(issuer="i", audience="a", algorithms=("ES256",), jwks_file="keys.json"),
    )
)


@pytest.mark.parametrize(
    "text", ["127.0.0.1:0", "127.8.9.1:7400", "[::1]:0", "localhost:0", ":7400", "unix:/tmp/x"]
)
def test_loopback_needs_no_identity(text: str) -> None:
    at = place("stream", text)
    assert at is not None
    assert at.is_local
    check(NodeSettings(stream=text))


@pytest.mark.parametrize(
    "text", ["0.0.0.0:0", "[::]:0", "10.0.0.7:7400", "example.com:7400", "localhost.evil.example:1"]
)
@pytest.mark.parametrize("door", ["http", "grpc", "stream"])
def test_beyond_loopback_somebody_must_be_provable_or_it_is_said_aloud(
    door: str, text: str
) -> None:
    with pytest.raises(InvalidOption, match=f"{door} would listen beyond loopback.*--insecure"):
        check(NodeSettings(**{door: text}))  # type: ignore[arg-type]
    check(NodeSettings(**{door: text}, insecure=True))  # type: ignore[arg-type]
    check(NodeSettings(**{door: text}, identity=PROVABLE))  # type: ignore[arg-type]


def test_roles_that_only_anonymous_callers_could_have_open_no_door_to_the_world() -> None:
    with pytest.raises(InvalidOption, match="beyond loopback"):
        check(NodeSettings(http="0.0.0.0:0", identity=IdentitySettings(anonymous=True)))


@pytest.mark.parametrize("text", ["7400", "host:", "host:port", "host:70000", "host:-1", "h:٣"])
def test_an_address_is_host_and_port(text: str) -> None:
    with pytest.raises(InvalidOption, match="HOST:PORT"):
        check(NodeSettings(http=text))


@pytest.mark.parametrize("door", ["http", "grpc"])
def test_only_the_stream_listens_on_a_unix_socket(door: str) -> None:
    with pytest.raises(InvalidOption, match="not on a Unix socket"):
        check(NodeSettings(**{door: "unix:/tmp/x"}))  # type: ignore[arg-type]


def test_a_node_without_a_door_or_a_queue_is_none() -> None:
    with pytest.raises(InvalidOption, match="at least one of"):
        check(NodeSettings(http="", grpc=None, stream=""))
    with pytest.raises(InvalidOption, match="at least one namespace"):
        check(NodeSettings(namespace=()))


@pytest.mark.parametrize(
    "name", ["", " ", "a b", "a/b", "../x", ".x", "-x", "ü", "a::b", "x" * 129]
)
def test_a_namespace_is_a_plain_name(name: str) -> None:
    with pytest.raises(InvalidOption, match="namespace"):
        check(NodeSettings(namespace=(name,)))


def test_the_control_planes_name_is_its_own() -> None:
    with pytest.raises(InvalidOption, match="control plane"):
        check(NodeSettings(namespace=("control",)))


def test_a_namespace_is_named_once() -> None:
    """G36: what was registered twice was silently served once."""
    with pytest.raises(InvalidOption, match="'a' is named twice"):
        check(NodeSettings(namespace=("a", "b", "a")))
    check(NodeSettings(namespace=("a",), namespaces={"a": NamespaceSettings()}))


def test_two_queues_do_not_share_a_file() -> None:
    with pytest.raises(InvalidOption, match="'a' and 'b' share a journal"):
        check(NodeSettings(journal="sqlite:///x.db", namespace=("a", "b")))
    own = NamespaceSettings(journal="sqlite:///x.db")
    with pytest.raises(InvalidOption, match="share a journal"):
        check(NodeSettings(namespaces={"a": own, "b": own}))
    check(NodeSettings(journal="sqlite:///x.db", namespace=("a",)))
    check(NodeSettings(journal="memory:", namespace=("a", "b")))
    check(NodeSettings(namespace=("a", "b")))


def test_a_hub_needs_grpc_and_room_for_many_shards() -> None:
    for settings, why in (
        (NodeSettings(hub=True, grpc=None), "over gRPC"),
        (NodeSettings(hub=True, journal="sqlite:///x.db"), "is one file"),
        (NodeSettings(hub=True, journal="hub://h:1"), "at another hub"),
        (NodeSettings(hub=True, namespace=("hub",)), "'hub' is the hub's own"),
    ):
        with pytest.raises(InvalidOption, match=why):
            check(settings)
    for settings in (NodeSettings(hub=True), NodeSettings(hub=True, journal="postgres://h/db")):
        check(settings)
    check(NodeSettings(hub=True, namespace=()))


@pytest.mark.parametrize("grace", [-1.0, float("nan"), float("inf"), 3601.0])
def test_a_grace_is_a_time(grace: float) -> None:
    with pytest.raises(InvalidOption, match="grace_s"):
        check(NodeSettings(grace_s=grace))


@pytest.mark.parametrize(
    "limits",
    [
        LimitSettings(rate_per_s=0),
        LimitSettings(rate_per_s=-1),
        LimitSettings(rate_per_s=float("nan")),
        LimitSettings(rate_per_s=float("inf")),
        LimitSettings(rate_per_s=1, burst=0),
        LimitSettings(connections_per_address=-1),
    ],
)
def test_a_limit_that_lets_nobody_through_is_found_at_the_start(limits: LimitSettings) -> None:
    with pytest.raises(InvalidOption, match=r"limits\."):
        check(NodeSettings(limits=limits))


@pytest.mark.parametrize(
    ("mesh", "stream", "words"),
    [
        (MeshSettings(peers=("http://b:7400",)), "127.0.0.1:0", "mesh.peers: 'http://b:7400'"),
        (MeshSettings(peers=("stream://",)), "127.0.0.1:0", "must be a stream address"),
        (MeshSettings(advertise="b:7402"), "127.0.0.1:0", "mesh.advertise: 'b:7402'"),
        (MeshSettings(peers=("stream://b:1",)), "", "call this one over stream"),
        (MeshSettings(peers=("stream://b:1",)), "0.0.0.0:0", "say where others reach this node"),
        (MeshSettings(server_id="spiffe://prod.*"), "127.0.0.1:0", "mesh.server_id is"),
        (MeshSettings(server_id="spiffe://a.b/c"), "127.0.0.1:0", "proved over TLS alone"),
        (MeshSettings(epoch_s=0.0), "127.0.0.1:0", "mesh.epoch_s is 0.0"),
        (MeshSettings(epoch_s=float("nan")), "127.0.0.1:0", "mesh.epoch_s is nan"),
    ],
)
def test_a_mesh_that_could_not_find_itself_is_refused(
    mesh: MeshSettings, stream: str, words: str
) -> None:
    with pytest.raises(InvalidOption, match=re.escape(words)):
        check(NodeSettings(mesh=mesh, stream=stream, insecure=True))


def test_a_node_that_says_where_it_is_reached_may_listen_anywhere() -> None:
    mesh = MeshSettings(peers=("streams://b:1",), advertise="streams://a:1")
    check(NodeSettings(mesh=mesh, stream="0.0.0.0:0", insecure=True))
    check(NodeSettings(mesh=mesh, stream="", insecure=True))
