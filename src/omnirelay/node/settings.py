"""What a node can be told: the keys of omnirelay.toml, their defaults and their bounds."""

import re
from ipaddress import ip_address
from math import isfinite
from pathlib import Path

import msgspec

from omnirelay.identity.policy import CONTROL
from omnirelay.identity.settings import IdentitySettings
from omnirelay.lease.options import QueueOptions
from omnirelay.mesh.keeper import KeepOptions
from omnirelay.model.errors import InvalidOption

DEFAULT_NAMESPACE = "resourcelease"
_NAMESPACE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


class NamespaceSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One lease component: its own queue, options and journal."""

    journal: str | None = None
    """None: the node's."""
    require: str | None = None
    options: QueueOptions = QueueOptions()
    keep: KeepOptions = KeepOptions()


class LimitSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Calls a second that one principal may make. Heartbeats, completions and whatever else makes
    room are never limited."""

    rate_per_s: float | None = None
    burst: int = 1000


class NodeSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    data: str = "./.omnirelay"
    http: str | None = "127.0.0.1:7400"
    """HOST:PORT, port 0 for a free one; an empty text for none."""
    grpc: str | None = "127.0.0.1:7401"
    stream: str | None = "127.0.0.1:7402"
    """Also `unix:/path/to.sock`."""
    journal: str | None = None
    """None: SQLite in the data folder, one file for each namespace."""
    namespace: tuple[str, ...] = (DEFAULT_NAMESPACE,)
    namespaces: dict[str, NamespaceSettings] = {}
    """Options of those that need their own; naming one here serves it too."""
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
    places = {name: place(name, getattr(settings, name)) for name in ("http", "grpc", "stream")}
    if not any(places.values()):
        raise InvalidOption("a node needs at least one of http, grpc and stream")
    if places["http"] is not None and places["http"].path is not None:
        raise InvalidOption("http listens on HOST:PORT, not on a Unix socket")
    if places["grpc"] is not None and places["grpc"].path is not None:
        raise InvalidOption("grpc listens on HOST:PORT, not on a Unix socket")
    open_to_all = [name for name, at in places.items() if at is not None and not at.is_local]
    if open_to_all and not settings.identity.can_prove and not settings.insecure:
        raise InvalidOption(
            f"{', '.join(open_to_all)} would listen beyond loopback while nobody can be proved: "
            f"configure [identity], or say --insecure"
        )
    _check_numbers(settings)
    _check_namespaces(settings)


def _check_numbers(settings: NodeSettings) -> None:
    if not isfinite(settings.grace_s) or not 0 <= settings.grace_s <= 3600:
        raise InvalidOption(f"grace_s is {settings.grace_s}, must be 0 to 3600")
    rate, burst = settings.limits.rate_per_s, settings.limits.burst
    if rate is not None and (not isfinite(rate) or rate <= 0):
        raise InvalidOption(f"limits.rate_per_s is {rate}, must be above 0, or left out")
    if burst < 1:
        raise InvalidOption(f"limits.burst is {burst}, must be at least 1")


def _check_namespaces(settings: NodeSettings) -> None:
    named = settings.namespace
    if not settings.all_namespaces():
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


def _check_journals(settings: NodeSettings) -> None:
    """A file has one owner, and one that is our own other queue would be hard to recognise."""
    seen: dict[str, str] = {}
    for name, own in settings.all_namespaces().items():
        journal = own.journal or settings.journal
        if journal is None or journal == "memory:":
            continue
        if journal in seen:
            raise InvalidOption(
                f"the namespaces {seen[journal]!r} and {name!r} share a journal: give each its own "
                f"under [namespaces], or none, and each gets a file in the data folder"
            )
        seen[journal] = name
