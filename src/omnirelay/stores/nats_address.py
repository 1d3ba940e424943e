"""`nats://h1:4222,h2:4222/STREAM?replicas=3` and the names that follow from it."""

import hashlib
import re
from typing import Final
from urllib.parse import parse_qsl, unquote

import msgspec

from omnirelay.model.errors import InvalidOption

EXAMPLE: Final = "nats://h1:4222,h2:4222/STREAM?replicas=3"
_OPTIONS: Final = ("replicas", "monitor", "creds", "tls")
_TOKEN_CHARS: Final = 128
"""Longer names become a digest: a subject must fit a server's control line of 4 KiB."""


class NatsAddress(msgspec.Struct, frozen=True):
    servers: tuple[str, ...]
    """With user and password, if the address has them: never for a message."""
    stream: str
    shown: str
    """The address without its secrets."""
    replicas: int = 0
    """0: as the stream has them, or one where it has to be made."""
    monitors: tuple[str, ...] = ()
    """Monitoring addresses of the servers, to learn how they sync."""
    creds: str | None = None

    @property
    def parts_stream(self) -> str:
        """Where snapshots lie, and envelopes that no single message can carry."""
        return f"{self.stream}_parts"

    @property
    def positions_bucket(self) -> str:
        return f"{self.stream}_positions"

    def journal_subject(self, shard: str) -> str:
        return f"{self.stream}.journal.{token(shard)}"

    def stored_subject(self, shard: str) -> str:
        """Where the server tells that something was stored on the journal's subject."""
        return f"{self.stream}.stored.{token(shard)}"

    def parts_subject(self, shard: str) -> str:
        return f"{self.stream}.part.{token(shard)}"


def token(name: str) -> str:
    """A name as one word of a subject or key, whatever it holds; two names never share one."""
    word = re.sub(r"[^A-Za-z0-9_-]", _escaped, name)
    if 0 < len(word) <= _TOKEN_CHARS:
        return word
    return f"=-{hashlib.blake2b(name.encode(), digest_size=16).hexdigest()}"


def _escaped(found: re.Match[str]) -> str:
    return "".join(f"={byte:02X}" for byte in found.group().encode())


def parse(url: str) -> NatsAddress:
    """Nothing in an address is passed over in silence: what is not known is refused."""
    hosts, options = _split(url)
    servers, _, stream = hosts.partition("/")
    names = [name.rpartition("@")[2] for name in servers.split(",")]
    shown = f"nats://{','.join(names)}/{stream}"
    if not stream or not all(
        re.fullmatch(r"[\w.-]+(:\d{1,5})?|\[[\w:]+\](:\d+)?", n) for n in names
    ):
        raise InvalidOption(f"{shown!r} names no servers and stream: write {EXAMPLE}")
    if not re.fullmatch(r"[A-Za-z0-9_-]{1,200}", stream):
        raise InvalidOption(f"{shown!r}: a stream's name has letters, digits, - and _ only")
    if options.get("tls", "on") != "on":
        raise InvalidOption(f"{shown!r}: tls is {options['tls']!r}, must be on, or left out")
    scheme = "tls" if "tls" in options else "nats"
    return NatsAddress(
        tuple(f"{scheme}://{server}" for server in servers.split(",")),
        stream,
        shown,
        _replicas(options.get("replicas", "0"), shown),
        tuple(filter(None, options.get("monitor", "").split(","))),
        options.get("creds"),
    )


def _split(url: str) -> tuple[str, dict[str, str]]:
    scheme, _, rest = url.partition("://")
    hosts, _, query = rest.partition("?")
    shown = re.sub(r"[^/,@]*@", "", hosts)
    if scheme.lower() != "nats" or not hosts or "#" in rest:
        raise InvalidOption(f"{scheme}://{shown} names no NATS journal: write {EXAMPLE}")
    options = dict(parse_qsl(query, keep_blank_values=True))
    unknown = sorted(set(options) - set(_OPTIONS))
    if unknown:
        raise InvalidOption(f"nats://{shown}: no option {unknown[0]!r}; there are {_OPTIONS}")
    return unquote(hosts), options


def _replicas(text: str, shown: str) -> int:
    if text not in ("0", "1", "3", "5"):
        raise InvalidOption(f"{shown}: replicas is {text!r}, must be 1, 3 or 5")
    return int(text)
