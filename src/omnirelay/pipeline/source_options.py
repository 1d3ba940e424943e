"""What a reader of `format("omnirelay")` may ask for, checked before anything is opened."""

import re
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any

import msgspec

from omnirelay.model import limits
from omnirelay.model.errors import InvalidOption
from omnirelay.model.items import to_ms
from omnirelay.pipeline.address import absolute
from omnirelay.pipeline.decode import EVENT_TYPES
from omnirelay.pipeline.quarantine import QUARANTINE
from omnirelay.pipeline.schema import EVENT
from omnirelay.pipeline.shelf import check_archive

VIEWS: dict[str, dict[str, str]] = {"events": EVENT, "quarantine": QUARANTINE}
ROWS_PER_BATCH = 1_000_000
ROWS_PER_PARTITION = 100_000


_NATS_HOSTS = re.compile(r"nats://[^/]*", re.IGNORECASE)


class SourceOptions(msgspec.Struct, frozen=True, kw_only=True):
    urls: tuple[str, ...]
    shards: tuple[str, ...] | None = None
    """None: all there are."""
    from_sequence: int | None = None
    to_sequence: int | None = None
    from_ms: int | None = None
    to_ms: int | None = None
    """The first moment that is too late."""
    rows_per_batch: int = ROWS_PER_BATCH
    rows_per_partition: int = ROWS_PER_PARTITION
    consumer: str | None = None
    archive: str | None = None
    token: str | None = None
    view: str = "events"
    columns: tuple[str, ...] | None = None
    event_types: tuple[str, ...] | None = None
    pushdown: bool = False
    """For a DataFrame that is used once: its conditions narrow what is read (source.py)."""

    def ddl(self) -> str:
        known = VIEWS[self.view]
        return ", ".join(f"{name} {known[name]}" for name in self.columns or known)


def source_options(urls: Iterable[str], **others: str | None) -> dict[str, str]:
    """What a reader of these journals is told; None is not said. Raises InvalidOption."""
    given = {name: value for name, value in others.items() if value is not None}
    options = {"url": ",".join(urls), **given}
    parse(options)  # what is wrong is said before Spark takes its time to start
    return options


def parse(given: Mapping[str, str]) -> SourceOptions:
    """Raises InvalidOption that names the option."""
    unknown = sorted(set(given) - set(_PARSERS) - {"path"})
    if unknown:
        known = ", ".join(_PARSERS)
        raise InvalidOption(f"there is no option {unknown[0]!r}; there are: {known}")
    if "path" in given and "url" in given:
        raise InvalidOption("url and load(...) both name a journal: use one of them")
    found = {"url": given["path"], **given} if "path" in given else dict(given)
    found.pop("path", None)
    if "url" not in found:
        raise InvalidOption("url is missing: name a journal, as sqlite:///leases.db")
    options = SourceOptions(
        **{_FIELDS.get(name, name): _PARSERS[name](name, text) for name, text in found.items()}
    )
    _check(options)
    return options


def _check(options: SourceOptions) -> None:
    first, last = options.from_sequence, options.to_sequence
    if first is not None and last is not None and last < first:
        raise InvalidOption(f"to_sequence is {last}, before from_sequence {first}")
    if None not in (options.from_ms, options.to_ms) and options.to_ms <= options.from_ms:  # type: ignore[operator]
        raise InvalidOption("to_time is not after from_time; it is the first moment left out")
    for kind in options.event_types or ():
        if kind not in EVENT_TYPES:
            known = ", ".join(sorted(EVENT_TYPES))
            raise InvalidOption(f"event_types: there is no {kind!r}; there are: {known}")
    for name in options.columns or ():
        if name not in VIEWS[options.view]:
            raise InvalidOption(f"columns: there is no column {name!r} in {options.view}")


def _text(name: str, text: str) -> str:
    if not text.strip():
        raise InvalidOption(f"{name} is empty")
    return text.strip()


def _archive(name: str, text: str) -> str:
    address = _text(name, text)
    check_archive(address)
    return address


def _name(name: str, text: str) -> str:
    if len(_text(name, text)) > limits.NAME_CHARS_MAX:
        raise InvalidOption(f"{name} is longer than {limits.NAME_CHARS_MAX} characters")
    return text.strip()


def list_of(name: str, text: str) -> tuple[str, ...]:
    found = tuple(one.strip() for one in text.split(","))
    if not all(found):
        raise InvalidOption(f"{name} {text!r} has an empty entry: part names by single commas")
    twice = next((one for one in found if found.count(one) > 1), None)
    if twice is not None:
        raise InvalidOption(f"{name} names {twice!r} twice")
    return found


def _urls(name: str, text: str) -> tuple[str, ...]:
    """The servers of one NATS address are parted by commas too, up to its stream."""
    found: list[str] = []
    for one in list_of(name, text):
        if found and _NATS_HOSTS.fullmatch(found[-1]) and "://" not in one:
            found[-1] = f"{found[-1]},{one}"
        else:
            found.append(one)
    return tuple(absolute(url) for url in found)


def _whole(least: int) -> Callable[[str, str], int]:
    def parse_number(name: str, text: str) -> int:
        # Python's own `int` would also take signs, blanks, underscores and digits of any script.
        number = int(text) if text.isascii() and text.isdigit() and len(text) < 20 else -1
        if not least <= number < 1 << 63:
            raise InvalidOption(f"{name} is {text[:80]!r}, must be a whole number from {least} on")
        return number

    return parse_number


def _time(name: str, text: str) -> int:
    try:
        time = datetime.fromisoformat(text.strip())
    except ValueError:
        time = None
    if time is None or time.tzinfo is None:
        raise InvalidOption(
            f"{name} is {text[:80]!r}, must be a time with its zone, as 2026-01-31T08:00:00Z"
        )
    return to_ms(time)


def _view(name: str, text: str) -> str:
    if text not in VIEWS:
        raise InvalidOption(f"{name} is {text[:80]!r}, must be one of {', '.join(VIEWS)}")
    return text


def _is(name: str, text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise InvalidOption(f"{name} is {text[:80]!r}, must be true or false")
    return text.lower() == "true"


# Any: each parser answers with the type of its field.
_PARSERS: dict[str, Callable[[str, str], Any]] = {
    "url": _urls,
    "shards": list_of,
    "from_sequence": _whole(1),
    "to_sequence": _whole(0),
    "from_time": _time,
    "to_time": _time,
    "rows_per_batch": _whole(1),
    "rows_per_partition": _whole(1),
    "consumer": _name,
    "archive": _archive,
    "token": _text,
    "view": _view,
    "columns": list_of,
    "event_types": list_of,
    "pushdown": _is,
}
_FIELDS = {"url": "urls", "from_time": "from_ms", "to_time": "to_ms"}
