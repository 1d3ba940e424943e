"""Every key that omnirelay.toml may hold, found by walking the settings themselves, so that a new
field is a new key, a new variable and a new line of `config show` without further work.

A node's own settings are imported when they are asked for: whoever only calls nodes need not have
installed what a node needs.
"""

import difflib
from collections.abc import Iterator, Mapping
from functools import cache
from types import NoneType, UnionType
from typing import Any, Final, Union, get_args, get_origin, get_type_hints

import msgspec

from omnirelay.model.errors import InvalidOption

DEFAULT_URL: Final = "http://127.0.0.1:7400"


class BadSetting(InvalidOption):
    """A setting that cannot be meant; says where it was read."""


class ClientSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[client]`: how the commands that call a node reach it."""

    url: str = DEFAULT_URL
    namespace: str = "resourcelease"
    token: str | None = None
    """Goes as bearer. `token_file` keeps it off the command line."""
    token_file: str | None = None
    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None
    server_id: str | None = None
    """The SPIFFE id that the node's certificate must carry, instead of the host's name."""
    timeout_s: float = 30.0
    """How long one call may take, beside the time it is asked to wait."""
    retry_s: float = 0.0
    """How long a call that got no answer is repeated."""


CLIENT: Final = "client"
COMMANDS: Final = "command"
"""The table of flags by command, as in `[command.enqueue]`."""


def is_secret(key: str) -> bool:
    """Whoever calls a node has one, in `[client]` or among the flags of a command."""
    table, _, name = key.rpartition(".")
    return name == "token" and (table == CLIENT or table.startswith(f"{COMMANDS}."))


class Leaf(msgspec.Struct, frozen=True):
    """One key that holds a value and not more keys."""

    key: str
    variable: str
    kind: Any
    """Any: a type as Python writes it."""
    default: Any

    @property
    def is_secret(self) -> bool:
        return is_secret(self.key)

    @property
    def is_list(self) -> bool:
        return get_origin(self.kind) is tuple and get_args(self.kind)[0] is str

    @property
    def may_be_none(self) -> bool:
        return NoneType in get_args(self.kind)

    @property
    def is_plain(self) -> bool:
        """Whether its text stands for itself; else the text is JSON."""
        kinds = get_args(self.kind) if is_union(self.kind) else (self.kind,)
        return all(isinstance(kind, type) and get_origin(kind) is None for kind in kinds)


def is_union(kind: Any) -> bool:
    return get_origin(kind) in (Union, UnionType)


def struct_of(kind: Any) -> type[msgspec.Struct] | None:
    """The struct that a kind is, or may be."""
    kinds = get_args(kind) if is_union(kind) else (kind,)
    found = [one for one in kinds if isinstance(one, type) and issubclass(one, msgspec.Struct)]
    return found[0] if found else None


@cache
def node_kind() -> type[msgspec.Struct]:
    from omnirelay.node.settings import NodeSettings

    return NodeSettings


@cache
def node_leaves() -> dict[str, Leaf]:
    return {leaf.key: leaf for leaf in _leaves(node_kind(), "", "OMNIRELAY_")}


@cache
def client_leaves() -> dict[str, Leaf]:
    found = _leaves(ClientSettings, f"{CLIENT}.", "OMNIRELAY_")
    return {leaf.key: leaf for leaf in found}


def _leaves(kind: type[msgspec.Struct], prefix: str, variables: str) -> Iterator[Leaf]:
    hints = get_type_hints(kind)
    for field in msgspec.structs.fields(kind):
        key, variable = f"{prefix}{field.name}", f"{variables}{field.name.upper()}"
        below = struct_of(hints[field.name])
        if below is not None:
            yield from _leaves(below, f"{key}.", f"{variable}_")
        else:
            default = None if field.default is msgspec.NODEFAULT else field.default
            if field.default_factory is not msgspec.NODEFAULT:
                default = field.default_factory()
            yield Leaf(key, variable, hints[field.name], default)


# -- unknown keys -------------------------------------------------------------------------------


def flattened(table: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The values of a file by key. Raises BadSetting for a key that nobody reads. Any: TOML."""
    found: dict[str, Any] = {}
    for name, value in table.items():
        if name == COMMANDS:
            continue
        if name == CLIENT:
            found.update(_flat(value, ClientSettings, f"{CLIENT}.", where))
        else:
            found.update(_flat({name: value}, node_kind(), "", where))
    return found


def _flat(
    table: Any, kind: type[msgspec.Struct], prefix: str, where: str
) -> Iterator[tuple[str, Any]]:
    if not isinstance(table, dict):
        raise BadSetting(f"{where}: {prefix.removesuffix('.')} is a table of keys, not a value")
    hints = get_type_hints(kind)
    for name, value in table.items():
        if name not in hints:
            raise BadSetting(f"{where}: {_unknown(f'{prefix}{name}', prefix, hints)}")
        below = struct_of(hints[name])
        if below is not None:
            yield from _flat(value, below, f"{prefix}{name}.", where)
            continue
        _check_inside(value, hints[name], f"{prefix}{name}", where)
        yield f"{prefix}{name}", value


def _check_inside(value: Any, kind: Any, key: str, where: str) -> None:
    """Tables that are values: one for each namespace, a list of them for issuers and roles."""
    inside = [struct for one in get_args(kind) if (struct := struct_of(one)) is not None]
    if not inside:
        return
    if isinstance(value, dict):
        for name, own in value.items():
            list(_flat(own, inside[-1], f"{key}.{name}.", where))
    elif isinstance(value, list):
        for number, own in enumerate(value, start=1):
            list(_flat(own, inside[-1], f"{key}[{number}].", where))


def _unknown(key: str, prefix: str, hints: Mapping[str, Any]) -> str:
    known = [f"{prefix}{name}" for name in hints]
    if not prefix:
        known += [CLIENT, COMMANDS]
    return unknown(key, known)


def unknown(key: str, known: list[str]) -> str:
    """In words, with the nearest known one."""
    near = difflib.get_close_matches(key, known, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(known)}"
    return f"there is no key {key!r}; {hint}"


def check_namespaces(value: Any, where: str) -> None:
    """One by one, so that a bad one is named."""
    from omnirelay.node.settings import NamespaceSettings

    if not isinstance(value, dict):
        return  # the conversion of the whole says it
    for name, own in value.items():
        try:
            msgspec.convert(own, NamespaceSettings)
        except (msgspec.ValidationError, InvalidOption) as error:
            raise BadSetting(f"{where}: namespaces.{name}: {error}") from None
