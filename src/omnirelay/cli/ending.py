"""How a command ends: the exit codes of CONTRACT §4, and one line that says what went wrong."""

import sys
from typing import Annotated, Final

import msgspec
import typer

from omnirelay.model.errors import (
    DeadlineExceeded,
    InvalidOption,
    OmniRelayError,
    OutcomeUnknown,
    Unavailable,
)

EXIT_OK: Final = 0
EXIT_FAILED: Final = 1
EXIT_USAGE: Final = 2
EXIT_UNREACHABLE: Final = 3

JsonFlag = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]


class BadAddress(InvalidOption):
    """The address itself is wrong, whatever may lie behind it."""


class CommandFailed(OmniRelayError):
    """It ran and did not get where it should."""

    code = "error.failed"


def exit_code(error: OmniRelayError) -> int:
    if isinstance(error, BadAddress):
        return EXIT_USAGE
    if isinstance(error, Unavailable | DeadlineExceeded) and not isinstance(error, OutcomeUnknown):
        return EXIT_UNREACHABLE
    return EXIT_FAILED


def complain(error: OmniRelayError) -> None:
    """One line on standard error. Asked before any command has parsed its flags, too, so whether it
    is JSON is read from the words themselves."""
    if "--json" in sys.argv[1:]:
        print(_as_json(error), file=sys.stderr)
    else:
        print(f"omnirelay: {' '.join(error.message.split())}", file=sys.stderr)


def _as_json(error: OmniRelayError) -> str:
    body = {"message": error.message, "status": error.status, "code": error.code}
    if error.details:
        body["details"] = error.details  # type: ignore[assignment]
    return msgspec.json.encode(body).decode()


def print_json(value: object) -> None:
    print(msgspec.json.encode(value).decode())
