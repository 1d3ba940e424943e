"""How a command ends: the exit codes of CONTRACT §4, and one line that says what went wrong."""

import os
import sys
from typing import Annotated, Any, Final

import msgspec
import typer

from omnirelay.model.errors import (
    DeadlineExceeded,
    InvalidOption,
    NothingToLease,
    OmniRelayError,
    OutcomeUnknown,
    Unavailable,
)
from omnirelay.node.keys import BadSetting

EXIT_OK: Final = 0
EXIT_FAILED: Final = 1
EXIT_USAGE: Final = 2
EXIT_UNREACHABLE: Final = 3

JsonFlag = Annotated[
    bool,
    typer.Option("--json", envvar="OMNIRELAY_JSON", help="Print JSON, for programs."),
]


class BadAddress(InvalidOption):
    """The address itself is wrong, whatever may lie behind it."""


class CommandFailed(OmniRelayError):
    """It ran and did not get where it should."""

    code = "error.failed"


def exit_code(error: OmniRelayError) -> int:
    if isinstance(error, BadAddress | BadSetting):
        return EXIT_USAGE
    if isinstance(error, OutcomeUnknown | NothingToLease):
        return EXIT_FAILED
    if isinstance(error, Unavailable | DeadlineExceeded):
        return EXIT_UNREACHABLE
    return EXIT_FAILED


def wants_json() -> bool:
    """Asked before any command has parsed its flags, too, so it is read from the words and the
    environment themselves."""
    said = os.environ.get("OMNIRELAY_JSON", "").lower()
    return "--json" in sys.argv[1:] or said in ("1", "true", "yes", "on", "t", "y")


def complain(error: OmniRelayError) -> None:
    """One line on standard error."""
    if wants_json():
        print(_as_json(error), file=sys.stderr)
    else:
        print(f"omnirelay: {' '.join(error.message.split())}", file=sys.stderr)


def _as_json(error: OmniRelayError) -> str:
    # Any: numbers and texts, as the error carries them.
    body: dict[str, Any] = {"message": error.message, "status": error.status, "code": error.code}
    if error.details:
        body["details"] = error.details
    return msgspec.json.encode(body).decode()


def print_json(value: object) -> None:
    print(msgspec.json.encode(value).decode())
