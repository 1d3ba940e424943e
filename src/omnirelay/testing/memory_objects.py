"""What the small object stores of tests have in common: objects in memory, and how they are
served."""

import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from urllib.parse import parse_qs, unquote, urlsplit

PAGE = 100
"""Small, so that listings of a test take several pages too."""


class Objects:
    """By path, each with a number that no other one ever has."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self._stored: dict[str, tuple[bytes, int]] = {}
        self._number = 0
        self._parts: dict[str, dict[str, bytes]] = {}

    def put_part(self, upload: str, name: str, body: bytes) -> None:
        """Of an object that is there when `join` is called."""
        with self.lock:
            self._parts.setdefault(upload, {})[name] = body

    def join(self, path: str, upload: str, names: list[str]) -> int | None:
        """None if a part is missing."""
        with self.lock:
            parts = self._parts.pop(upload, {})
        if any(name not in parts for name in names):
            return None
        return self.put(path, b"".join(parts[name] for name in names))

    def put(self, path: str, body: bytes, *, over: int | None = None) -> int | None:
        """Over the one of that number, 0 for none at all; whatever is there, if None. Returns its
        own, or None if there is another."""
        with self.lock:
            if over is not None and over != self._stored.get(path, (b"", 0))[1]:
                return None
            self._number += 1
            self._stored[path] = (body, self._number)
            return self._number

    def get(self, path: str) -> tuple[bytes, int] | None:
        return self._stored.get(path)

    def delete(self, path: str) -> bool:
        with self.lock:
            return self._stored.pop(path, None) is not None

    def page(self, folder: str, prefix: str, after: str) -> tuple[dict[str, int], bool]:
        """The sizes of those below `folder` by name, in order; and whether there are more."""
        start = f"{folder}/"
        with self.lock:
            sizes = {
                p[len(start) :]: len(b) for p, (b, _) in self._stored.items() if p.startswith(start)
            }
        names = sorted(name for name in sizes if name.startswith(prefix) and name > after)
        return {name: sizes[name] for name in names[:PAGE]}, len(names) > PAGE


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1  # head and body in one packet
    objects = Objects()

    def read_body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length", "0")))

    @property
    def place(self) -> str:
        return unquote(urlsplit(self.path).path).rstrip("/")

    @property
    def query(self) -> dict[str, str]:
        asked = parse_qs(urlsplit(self.path).query, keep_blank_values=True)
        return {name: values[0] for name, values in asked.items()}

    def answer(self, status: int, body: bytes = b"", headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def answer_object(self, body: bytes, headers: dict[str, str]) -> None:
        """All of it, or the range that was asked for."""
        asked = self.headers.get("Range") or self.headers.get("x-ms-range")
        if asked is None:
            self.answer(200, body, headers)
            return
        start, _, end = asked.removeprefix("bytes=").partition("-")
        part = body[int(start) : int(end) + 1]
        shown = f"bytes {start}-{int(start) + len(part) - 1}/{len(body)}"
        self.answer(206, part, {**headers, "Content-Range": shown})

    def log_message(self, format: str, *args: object) -> None:
        return None


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def server_bind(self) -> None:
        """Without asking a name server for our own name, which may take half a minute."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = "localhost", self.server_address[1]


def serve(handler: type[Handler]) -> None:
    """At the port that the program is given."""
    _Server(("127.0.0.1", int(sys.argv[1])), handler).serve_forever()
