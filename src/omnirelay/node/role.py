"""Whether a node serves or stands by, remembered across restarts.

The settings say how it begins. Once it was promoted, or told to stand down, that counts and not the
settings: a region that gave its work away must not take it back because somebody restarted it.
"""

import os
from pathlib import Path

import msgspec

from omnirelay.model.errors import InvalidOption
from omnirelay.node.settings import NodeSettings

SERVING = "serving"
STANDBY = "standby"
NAME = "role.json"


class Role(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    role: str
    at_ms: int
    why: str


class RoleFile:
    def __init__(self, settings: NodeSettings) -> None:
        self._folder = Path(settings.data)
        self._path = self._folder / NAME
        self._is_standby = settings.standby

    def read(self) -> Role:
        """Raises InvalidOption if what is there cannot be understood: to guess would be to risk
        that two regions serve."""
        begun = Role(STANDBY if self._is_standby else SERVING, 0, "as it was set up")
        try:
            body = self._path.read_bytes()
        except FileNotFoundError:
            return begun
        except OSError as error:
            raise InvalidOption(f"{self._path}: {error.strerror}") from error
        try:
            role = msgspec.json.decode(body, type=Role)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise InvalidOption(self._unclear(str(error))) from None
        if role.role not in (SERVING, STANDBY):
            raise InvalidOption(self._unclear(f"its role is {role.role!r}"))
        return role

    def _unclear(self, why: str) -> str:
        return (
            f"{self._path} does not say whether this node serves or stands by ({why}): make sure "
            f"that no other region serves, then remove it"
        )

    def write(self, role: Role) -> None:
        """Durable when it returns. Raises InvalidOption."""
        fresh = self._path.with_name(f"{NAME}.new")
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            with fresh.open("wb") as file:
                file.write(msgspec.json.encode(role))
                file.flush()
                os.fsync(file.fileno())
            fresh.replace(self._path)
            folder = os.open(self._folder, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
        except OSError as error:
            raise InvalidOption(f"{self._path}: {error.strerror}") from error
