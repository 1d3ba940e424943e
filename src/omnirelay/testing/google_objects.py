"""A Google Cloud Storage of one process and no disk: put, put only if absent, get, delete and list,
as the XML protocol has them. Run as a program, it serves at the port named."""

import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

PAGE = 100
"""Small, so that listings of a test take several pages too."""


class _Objects:
    def __init__(self) -> None:
        self.stored: dict[str, tuple[bytes, int]] = {}
        self.lock = threading.Lock()
        self._generation = 0

    def put(self, path: str, body: bytes, generation: str | None) -> int | None:
        """None: the condition does not hold."""
        with self.lock:
            there = self.stored.get(path, (b"", 0))[1]
            if generation is not None and generation != str(there):
                return None
            self._generation += 1
            self.stored[path] = (body, self._generation)
            return self._generation


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1  # head and body in one packet
    objects = _Objects()

    def do_PUT(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        wanted = self.headers.get("x-goog-if-generation-match")
        generation = self.objects.put(self._path(), body, wanted)
        if generation is None:
            self._answer(412, b"<Error><Code>PreconditionFailed</Code></Error>")
        else:
            self._answer(
                200, b"", {"ETag": f'"{generation}"', "x-goog-generation": str(generation)}
            )

    def do_GET(self) -> None:
        if self._path().count("/") <= 1:
            self._list()
            return
        found = self.objects.stored.get(self._path())
        if found is None:
            self._answer(404, b"<Error><Code>NoSuchKey</Code></Error>")
            return
        headers = {
            "ETag": f'"{found[1]}"',
            "Last-Modified": "Mon, 01 Jan 2024 00:00:00 GMT",
            "x-goog-generation": str(found[1]),
        }
        self._answer(200, found[0], headers)

    def do_DELETE(self) -> None:
        with self.objects.lock:
            is_there = self.objects.stored.pop(self._path(), None) is not None
        self._answer(204 if is_there else 404, b"")

    def _list(self) -> None:
        query = {name: values[0] for name, values in parse_qs(urlsplit(self.path).query).items()}
        bucket = self._path()
        after = max(query.get("start-after", ""), query.get("continuation-token", ""))
        with self.objects.lock:
            stored = {path: len(body) for path, (body, _) in self.objects.stored.items()}
        names = sorted(path[len(bucket) + 1 :] for path in stored if path.startswith(f"{bucket}/"))
        found = [n for n in names if n.startswith(query.get("prefix", "")) and n > after]
        page = found[:PAGE]
        items = "".join(
            f"<Contents><Key>{escape(name)}</Key><Size>{stored[f'{bucket}/{name}']}</Size>"
            f"<LastModified>2024-01-01T00:00:00Z</LastModified><ETag>1</ETag></Contents>"
            for name in page
        )
        end = ""
        if len(found) > PAGE:
            end = f"<NextContinuationToken>{escape(page[-1])}</NextContinuationToken>"
        self._answer(200, f"<ListBucketResult>{items}{end}</ListBucketResult>".encode())

    def _path(self) -> str:
        return unquote(urlsplit(self.path).path).rstrip("/")

    def _answer(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        return None


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def server_bind(self) -> None:
        """Without asking a name server for our own name, which may take half a minute."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = "localhost", self.server_address[1]


if __name__ == "__main__":
    _Server(("127.0.0.1", int(sys.argv[1])), _Handler).serve_forever()
