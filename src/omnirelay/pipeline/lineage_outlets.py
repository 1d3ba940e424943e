"""Where lineage goes: a file, a collector over HTTP, or the screen."""

import os
from pathlib import Path
from typing import BinaryIO, Protocol, TextIO
from urllib.parse import urlsplit

from openlineage.client.event_v2 import RunEvent

from omnirelay.model.errors import InvalidOption, Unavailable
from omnirelay.pipeline.lineage_events import line_of

ENDPOINT = "api/v1/lineage"
TIMEOUT_S = 10.0
RETRIES = 5
"""Each waits twice as long as the one before, from 0.3 s on."""


class Outlet(Protocol):
    def begin(self, kept: int) -> None:
        """`kept` is what the last run that got somewhere said of itself in `settle`."""

    def send(self, event: RunEvent) -> None:
        """Raises Unavailable if it was not taken; it may be sent again."""

    def settle(self) -> int:
        """All that was sent is safe there. A number to be given back by `begin` next time."""

    def close(self) -> None: ...


class FileOutlet:
    """One event a line. What was written after the last `settle` is cut off by the next run, so the
    file holds every event once, whenever a run was killed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: BinaryIO | None = None

    def begin(self, kept: int) -> None:
        there = self._path.stat().st_size if self._path.exists() else 0
        if there < kept:
            raise InvalidOption(
                f"{self._path} has {there} bytes, of which {kept} were written before: it was "
                f"changed; name another file, or begin anew without the position"
            )
        if there and not kept:
            raise InvalidOption(
                f"{self._path} is there already and was not written by this command"
            )
        try:
            self._file = self._path.open("ab")
            self._file.truncate(kept)
            self._file.seek(kept)
        except OSError as error:
            raise InvalidOption(f"{self._path}: {error.strerror}") from error

    def send(self, event: RunEvent) -> None:
        assert self._file is not None
        try:
            self._file.write(line_of(event).encode() + b"\n")
        except OSError as error:
            raise Unavailable(f"{self._path}: {error.strerror}") from error

    def settle(self) -> int:
        assert self._file is not None
        try:
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as error:
            raise Unavailable(f"{self._path}: {error.strerror}") from error
        return self._file.tell()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


class HttpOutlet:
    """The official client's transport: it repeats what nobody answered, then says so."""

    def __init__(self, url: str, *, token: str | None = None, retries: int = RETRIES) -> None:
        from openlineage.client.transport.http import HttpConfig, HttpTransport

        parts = urlsplit(url)
        auth = {"auth": {"type": "api_key", "apiKey": token}} if token else {}
        self._url = url
        self._transport = HttpTransport(
            HttpConfig.from_dict(
                {
                    "url": f"{parts.scheme}://{parts.netloc}",
                    "endpoint": parts.path.strip("/") or ENDPOINT,
                    "timeout": TIMEOUT_S,
                    "retry": {"total": retries, "read": retries, "connect": retries},
                    **auth,
                }
            )
        )

    def begin(self, kept: int) -> None:
        pass

    def send(self, event: RunEvent) -> None:
        try:
            self._transport.emit(event)
        except OSError as error:  # all that `requests` raises is one
            raise Unavailable(f"{self._url} does not take lineage: {error}") from error

    def settle(self) -> int:
        return 0

    def close(self) -> None:
        self._transport.close()


class ScreenOutlet:
    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def begin(self, kept: int) -> None:
        pass

    def send(self, event: RunEvent) -> None:
        print(line_of(event), file=self._stream)

    def settle(self) -> int:
        self._stream.flush()
        return 0

    def close(self) -> None:
        pass


def outlet_of(address: str, screen: TextIO, *, token: str | None = None) -> Outlet:
    """`file:PATH`, `http(s)://…` or `console`."""
    if address == "console":
        return ScreenOutlet(screen)
    kind, _, rest = address.partition(":")
    if kind == "file" and rest.strip():
        return FileOutlet(Path(rest))
    if kind in ("http", "https") and urlsplit(address).netloc:
        return HttpOutlet(address, token=token)
    raise InvalidOption(f"{address!r} is no place for lineage: file:PATH, http://host or console")
