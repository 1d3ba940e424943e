"""Where settings come from: flag, then environment, then omnirelay.toml, then the default. Each
value remembers its source, so that `config show` and every complaint can name it."""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from omnirelay.model.errors import InvalidOption
from omnirelay.node.keys import (
    CLIENT,
    COMMANDS,
    BadSetting,
    ClientSettings,
    Leaf,
    check_namespaces,
    client_leaves,
    flattened,
    is_secret,
    node_kind,
    node_leaves,
    unknown,
)
from omnirelay.stores.address import masked

if TYPE_CHECKING:
    from omnirelay.node.settings import NodeSettings

FILE: Final = "omnirelay.toml"
FILE_VARIABLE: Final = "OMNIRELAY_CONFIG"
DEFAULT: Final = "default"
_FILE_BYTES: Final = 4 << 20


class Setting(msgspec.Struct, frozen=True):
    key: str
    value: Any
    """Any: of the kind its key has."""
    source: str

    def shown(self) -> Any:
        """As it may be shown to anybody."""
        if self.value is not None and is_secret(self.key):
            return "***"
        return msgspec.to_builtins(_masked(self.value), str_keys=True)


class Sources:
    """Every key's value and source; turned into settings on demand."""

    def __init__(self, settings: dict[str, Setting], path: Path | None) -> None:
        self.settings = settings
        self.path = path

    def node(self) -> "NodeSettings":
        """Raises BadSetting, naming file and key."""
        from omnirelay.node.settings import check

        own = {key: one for key, one in self.settings.items() if not key.startswith(f"{CLIENT}.")}
        settings: NodeSettings = self._converted(own, node_kind())
        try:
            check(settings)
        except InvalidOption as error:
            raise BadSetting(error.message) from None
        return settings

    def client(self) -> ClientSettings:
        prefix = f"{CLIENT}."
        own = {k.removeprefix(prefix): s for k, s in self.settings.items() if k.startswith(prefix)}
        return self._with_token(self._converted(own, ClientSettings))

    def _converted(self, own: "dict[str, Setting]", kind: type[msgspec.Struct]) -> Any:
        """Any: one of `kind`."""
        given = {key: one.value for key, one in own.items() if one.source != DEFAULT}
        try:
            return msgspec.convert(_nested(given), kind)
        except msgspec.ValidationError as error:
            what, _, where = str(error).partition(" - at ")
            key = where.strip("`").removeprefix("$").removeprefix(".")
            raise BadSetting(f"{self._origin(key)}{key or 'settings'}: {_lower(what)}") from None

    def _origin(self, key: str) -> str:
        under = [one for name, one in self.settings.items() if name.startswith(key)]
        return next((f"{one.source}: " for one in under if one.source != DEFAULT), "")

    def _with_token(self, client: ClientSettings) -> ClientSettings:
        """The token out of its file. Of the two keys, the one said closer to the command counts."""
        if client.token_file is None:
            return _checked_token(client)
        token, file = (self.settings[f"{CLIENT}.{name}"] for name in ("token", "token_file"))
        if client.token is not None and _rank(token.source) < _rank(file.source):
            return _checked_token(client)
        if client.token is not None and _rank(token.source) == _rank(file.source):
            raise BadSetting("token and token_file are both set: choose one")
        try:
            read = Path(client.token_file).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            why = getattr(error, "strerror", None) or "it is not text"
            raise BadSetting(f"token_file is {client.token_file!r}: {why}") from None
        return _checked_token(msgspec.structs.replace(client, token=read or None))


def load(
    flags: Mapping[str, Any], environ: Mapping[str, str], *, config: str | None = None
) -> Sources:
    """The settings of a node, and those of whoever calls one. `flags` by key, only those that were
    given; a text among them is read as a variable is. Raises BadSetting. Any: whatever a flag or
    TOML holds."""
    path = config_path(config, environ)
    in_file = {} if path is None else _values(path)
    return _chosen({**node_leaves(), **client_leaves()}, flags, environ, in_file, path)


def load_client(
    flags: Mapping[str, Any], environ: Mapping[str, str], *, config: str | None = None
) -> Sources:
    """Those of whoever calls a node, where no node may be installed. Any: as above."""
    path = config_path(config, environ)
    try:
        in_file = {} if path is None else _values(path)
    except ModuleNotFoundError:
        assert path is not None
        in_file = flattened({CLIENT: read_file(path).get(CLIENT, {})}, str(path))
    return _chosen(client_leaves(), flags, environ, in_file, path)


def _values(path: Path) -> dict[str, Any]:
    in_file = flattened(read_file(path), str(path))
    if "namespaces" in in_file:
        check_namespaces(in_file["namespaces"], str(path))
    return in_file


def _chosen(
    leaves: Mapping[str, Leaf],
    flags: Mapping[str, Any],
    environ: Mapping[str, str],
    in_file: Mapping[str, Any],
    path: Path | None,
) -> Sources:
    for key in flags:
        if key not in leaves:
            raise BadSetting(f"--set {key}: {unknown(key, list(leaves))}")
    found = {}
    for key, leaf in leaves.items():
        if key in flags:
            found[key] = _read(leaf, flags[key], "flag")
        elif leaf.variable in environ:
            found[key] = _read(leaf, environ[leaf.variable], f"env {leaf.variable}")
        elif key in in_file:
            found[key] = _read(leaf, in_file[key], str(path), is_text=False)
        else:
            found[key] = Setting(key, leaf.default, DEFAULT)
    return Sources(found, path)


def config_path(config: str | None, environ: Mapping[str, str]) -> Path | None:
    """A file that was named must be there; the one of this folder may be missing."""
    named = config or environ.get(FILE_VARIABLE)
    if named:
        return Path(named)
    return Path(FILE) if Path(FILE).is_file() else None


def read_file(path: Path) -> dict[str, Any]:
    """Any: TOML."""
    try:
        with path.open("rb") as file:
            text = file.read(_FILE_BYTES + 1)
        if len(text) > _FILE_BYTES:
            raise BadSetting(f"{path} has more than {_FILE_BYTES} bytes")
        return tomllib.loads(text.decode())
    except OSError as error:
        raise BadSetting(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise BadSetting(f"{path} is not UTF-8 text") from None
    except tomllib.TOMLDecodeError as error:
        raise BadSetting(f"{path} is not TOML: {error}") from None


def flag_defaults(path: Path) -> dict[str, Any]:
    """The table of flags by command. Any: TOML; the command checks each."""
    table = read_file(path).get(COMMANDS, {})
    if not isinstance(table, dict):
        raise BadSetting(f"{path}: {COMMANDS} is a table of commands, not a value")
    return table


# -- one value ----------------------------------------------------------------------------------


def _read(leaf: Leaf, given: Any, source: str, *, is_text: bool = True) -> Setting:
    value = _from_text(leaf, given, source) if is_text and isinstance(given, str) else given
    if leaf.is_list and isinstance(value, str):
        value = [value]
    try:
        # Of a file the kind must be right; of a flag or variable the text must be readable as it.
        checked = msgspec.convert(value, leaf.kind, strict=not is_text)
    except msgspec.ValidationError as error:
        why = "not shown" if leaf.is_secret else _lower(str(error).partition(" - at ")[0])
        raise BadSetting(f"{source}: {leaf.key}: {why}") from None
    except InvalidOption as error:
        raise BadSetting(f"{source}: {leaf.key}: {error.message}") from None
    return Setting(leaf.key, checked if leaf.is_plain else value, source)


def _from_text(leaf: Leaf, text: str, source: str) -> Any:
    if not text and leaf.may_be_none:
        return None
    if leaf.is_list:
        return [part.strip() for part in text.split(",") if part.strip()]
    if leaf.kind is bool:
        return _BOOLEANS.get(text.strip().lower(), text)
    if leaf.is_plain:
        return text
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        raise BadSetting(f"{source}: {leaf.key}: write it as JSON, or in {FILE}") from None


_BOOLEANS: Final = {
    **dict.fromkeys(("1", "true", "yes", "on"), True),
    **dict.fromkeys(("0", "false", "no", "off"), False),
}


def _nested(flat: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in flat.items():
        *tables, name = key.split(".")
        inner = found
        for table in tables:
            inner = inner.setdefault(table, {})
        inner[name] = value
    return found


def _checked_token(client: ClientSettings) -> ClientSettings:
    """Said without the token: it is nobody's business."""
    if client.token is not None and not (client.token.isascii() and client.token.isprintable()):
        raise BadSetting("the token has characters that no header can carry")
    return client


def _rank(source: str) -> int:
    """How close to the command it was said."""
    return {"flag": 0, DEFAULT: 3}.get(source, 1 if source.startswith("env ") else 2)


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:]


def _masked(value: Any) -> Any:
    """Without the password of any address in it."""
    if isinstance(value, dict):
        return {key: _masked(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_masked(one) for one in value]
    return masked(value) if isinstance(value, str) else value
