"""What a node can be told: the keys of omnirelay.toml, their defaults and their bounds."""

import re
from ipaddress import ip_address
from math import isfinite
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from omnirelay.identity.policy import CONTROL
from omnirelay.identity.settings import IdentitySettings
from omnirelay.journal.replication import NAMESPACE as HUB
from omnirelay.lease.options import QueueOptions
from omnirelay.mesh.keeper import KeepOptions
from omnirelay.model.errors import InvalidOption
from omnirelay.model.limits import CONNECTIONS_PER_ADDRESS_MAX
from omnirelay.stores.address import masked
from omnirelay.stores.registry import has_one_owner, is_hub
from omnirelay.transports.server_id import ServerId

DEFAULT_NAMESPACE = "resourcelease"
CALL_DOORS = ("http", "grpc", "stream")
DOORS = (*CALL_DOORS, "control")
_STREAM_SCHEMES = ("stream", "streams", "stream+unix")
_NAMESPACE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


class NamespaceSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One lease component: its own queue, options and journal."""

    journal: str | None = None
    """None: the node's."""
    mirrors: tuple[str, ...] = ()
    """Addresses of journals that are kept the same as this one; none: the node's."""
    require: str | None = None
    options: QueueOptions = QueueOptions()
    keep: KeepOptions = KeepOptions()


class LimitSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What one caller may ask for at most."""

    rate_per_s: float | None = None
    """Calls a second that one principal may make. Heartbeats, completions and whatever else makes
    room are never limited."""
    burst: int = 1000
    connections_per_address: int = CONNECTIONS_PER_ADDRESS_MAX
    """At each of http, grpc, stream and control; 0 is no bound. Trusted proxies have none."""


class MeshSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[mesh]`: several nodes over one journal. They need a journal that a server or an object
    store keeps; a SQLite file has one owner, and then none of this matters."""

    peers: tuple[str, ...] = ()
    """Stream addresses of the other nodes; this node's own may be among them."""
    advertise: str | None = None
    """The stream address at which other nodes reach this one. None: where it listens."""
    epoch_s: float = 2.0
    """How long an owner may be silent before another node takes over."""
    server_id: str | None = None
    """The SPIFFE id that the certificates of the other nodes must carry, exact or with a `*` at the
    end; their host names are then not looked at."""


class NodeSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    data: str = "./.omnirelay"
    http: str | None = "127.0.0.1:7400"
    """HOST:PORT, port 0 for a free one; an empty text for none."""
    grpc: str | None = "127.0.0.1:7401"
    stream: str | None = "127.0.0.1:7402"
    """Also `unix:/path/to.sock`."""
    control: str | None = None
    """HOST:PORT of the control plane, where it is to be apart from calls; None: it is at `http`."""
    journal: str | None = None
    """None: SQLite in the data folder, one file for each namespace."""
    mirrors: tuple[str, ...] = ()
    """Addresses of journals that every queue's own is mirrored to."""
    mirror_hold_s: float = 7 * 24 * 3600.0
    """How long pruning waits for a mirror that cannot be reached."""
    namespace: tuple[str, ...] = (DEFAULT_NAMESPACE,)
    namespaces: dict[str, NamespaceSettings] = {}
    """Options of those that need their own; naming one here serves it too."""
    standby: bool = False
    """Follow journals that another region mirrors here, and take no work until promoted."""
    hub: bool = False
    """Keep the journals of other nodes, which name this one as `hub://host:port`."""
    ready_file: str | None = None
    node_id: str | None = None
    require: str | None = None
    insecure: bool = False
    """Listen beyond loopback although nobody can be proved."""
    grace_s: float = 10.0
    """How long a stopping node lets calls under way finish."""
    log_level: str = "warning"
    identity: IdentitySettings = IdentitySettings()
    limits: LimitSettings = LimitSettings()
    mesh: MeshSettings = MeshSettings()

    def all_namespaces(self) -> dict[str, NamespaceSettings]:
        named = {name: NamespaceSettings() for name in self.namespace}
        return {**named, **self.namespaces}


class Place(msgspec.Struct, frozen=True):
    """Where an inbound listens."""

    host: str = ""
    port: int = 0
    path: Path | None = None

    @property
    def is_local(self) -> bool:
        if self.path is not None or self.host == "localhost":
            return True
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return False


def place(name: str, text: str | None) -> Place | None:
    """Raises InvalidOption, naming the setting."""
    if not text:
        return None
    if text.startswith("unix:"):
        return Place(path=Path(text.removeprefix("unix:")))
    host, colon, port = text.rpartition(":")
    if not colon or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise InvalidOption(f"{name} is {text!r}, must be HOST:PORT, such as 127.0.0.1:0")
    return Place(host.strip("[]") or "127.0.0.1", int(port))


def check(settings: NodeSettings) -> None:
    """What no single field can tell. Raises InvalidOption."""
    places = {name: place(name, getattr(settings, name)) for name in DOORS}
    if not any(places[name] for name in CALL_DOORS):
        raise InvalidOption("a node needs at least one of http, grpc and stream")
    for name in ("http", "grpc", "control"):
        at = places[name]
        if at is not None and at.path is not None:
            raise InvalidOption(f"{name} listens on HOST:PORT, not on a Unix socket")
    open_to_all = [name for name, at in places.items() if at is not None and not at.is_local]
    if open_to_all and not settings.identity.can_prove and not settings.insecure:
        raise InvalidOption(
            f"{', '.join(open_to_all)} would listen beyond loopback while nobody can be proved: "
            f"configure [identity], or say --insecure"
        )
    _check_numbers(settings)
    _check_namespaces(settings)
    tls = settings.identity.tls
    has_tls = tls is not None and tls.client_ca_file is not None
    _check_mesh(settings.mesh, places["stream"], has_tls=has_tls)
    if settings.hub:
        _check_hub(settings)


def _check_mesh(mesh: MeshSettings, stream: Place | None, *, has_tls: bool) -> None:
    for key, url in [("peers", one) for one in mesh.peers] + [("advertise", mesh.advertise or "")]:
        parts = urlsplit(url)
        if url and (parts.scheme not in _STREAM_SCHEMES or not (parts.netloc or parts.path)):
            raise InvalidOption(
                f"mesh.{key}: {url!r} must be a stream address, such as stream://10.0.0.2:7402"
            )
    if mesh.server_id is not None:
        _check_server_id(mesh, has_tls=has_tls)
    if not mesh.peers or mesh.advertise:
        return
    if stream is None:
        raise InvalidOption("mesh.peers: other nodes call this one over stream: give it an address")
    if stream.path is None and stream.host in ("0.0.0.0", "::"):  # noqa: S104
        raise InvalidOption(
            f"mesh.advertise: stream listens on {stream.host}, so say where others reach this node"
        )


def _check_server_id(mesh: MeshSettings, *, has_tls: bool) -> None:
    try:
        ServerId(mesh.server_id or "")
    except InvalidOption as error:
        raise InvalidOption(f"mesh.{error.message}") from None
    plain = [url for url in mesh.peers if urlsplit(url).scheme != "streams"]
    if plain or not has_tls:
        raise InvalidOption(
            "mesh.server_id: nodes are proved over TLS alone: their addresses are streams://, and "
            "identity.tls names client_ca_file"
        )


def _check_numbers(settings: NodeSettings) -> None:
    if not isfinite(settings.grace_s) or not 0 <= settings.grace_s <= 3600:
        raise InvalidOption(f"grace_s is {settings.grace_s}, must be 0 to 3600")
    if not isfinite(settings.mesh.epoch_s) or not 0.1 <= settings.mesh.epoch_s <= 3600:
        raise InvalidOption(f"mesh.epoch_s is {settings.mesh.epoch_s}, must be 0.1 to 3600")
    if not isfinite(settings.mirror_hold_s) or settings.mirror_hold_s < 0:
        raise InvalidOption(f"mirror_hold_s is {settings.mirror_hold_s}, must be at least 0")
    rate, burst = settings.limits.rate_per_s, settings.limits.burst
    if rate is not None and (not isfinite(rate) or rate <= 0):
        raise InvalidOption(f"limits.rate_per_s is {rate}, must be above 0, or left out")
    if burst < 1:
        raise InvalidOption(f"limits.burst is {burst}, must be at least 1")
    if (most := settings.limits.connections_per_address) < 0:
        raise InvalidOption(f"limits.connections_per_address is {most}, must be 0 or more")


def _check_namespaces(settings: NodeSettings) -> None:
    named = settings.namespace
    if not settings.all_namespaces() and not settings.hub:
        raise InvalidOption("a node needs at least one namespace")
    for name in named:
        if named.count(name) > 1:
            raise InvalidOption(f"the namespace {name[:80]!r} is named twice")
    for name in settings.all_namespaces():
        if name == CONTROL:
            raise InvalidOption(f"the namespace {CONTROL!r} is the control plane's own")
        if not _NAMESPACE.fullmatch(name):
            raise InvalidOption(
                f"namespace {name[:80]!r} must be letters, digits, '.', '-' and '_', at most 128"
            )
    _check_journals(settings)


def _check_hub(settings: NodeSettings) -> None:
    journal = settings.journal
    if place("grpc", settings.grpc) is None:
        raise InvalidOption("a hub is called over gRPC: give it an address for grpc")
    if HUB in settings.all_namespaces():
        raise InvalidOption(f"the namespace {HUB!r} is the hub's own")
    if journal is not None and has_one_owner(journal):
        raise InvalidOption(
            f"a hub keeps many shards and {journal!r} is one file: leave journal out, and each "
            f"gets a file in the data folder, or name a server"
        )
    if journal is not None and is_hub(journal):
        raise InvalidOption("a hub cannot keep its journals at another hub: name that one instead")


def _check_journals(settings: NodeSettings) -> None:
    """A file has one owner, and one that is our own other queue would be hard to recognise."""
    seen: dict[str, str] = {}
    for name, own in settings.all_namespaces().items():
        journal = own.journal or settings.journal
        _check_mirrors(name, journal, own.mirrors or settings.mirrors)
        if journal is None or not has_one_owner(journal):
            continue
        if journal in seen:
            raise InvalidOption(
                f"the namespaces {seen[journal]!r} and {name!r} share a journal: give each its own "
                f"under [namespaces], or none, and each gets a file in the data folder"
            )
        seen[journal] = name


def _check_mirrors(name: str, journal: str | None, mirrors: tuple[str, ...]) -> None:
    for url in mirrors:
        if url == journal:
            raise InvalidOption(f"mirrors of {name!r}: {masked(url)} is its own journal")
        if mirrors.count(url) > 1:
            raise InvalidOption(f"mirrors of {name!r}: {masked(url)} is named twice")
