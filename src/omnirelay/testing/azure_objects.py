"""An Azure Blob Storage of one process and no disk: put (in blocks too), put only if absent, get,
delete in batches and list, each signed with the account's key.
`python -m omnirelay.testing.azure_objects PORT`.

Azurite answers the same (3.35, tried by hand): 409 where something is there, 404 where nothing is,
202 for a batch, with one answer for each of its parts.
"""

import base64
import hashlib
import hmac
import re
from collections.abc import Mapping
from email.parser import BytesParser
from urllib.parse import parse_qsl, unquote, urlsplit
from xml.sax.saxutils import escape

from omnirelay.testing.memory_objects import Handler, serve

ACCOUNT = "devstoreaccount1"
KEY = base64.b64encode(hashlib.sha512(b"the key of an account that is nobody's").digest()).decode()
_SIGNED = (
    *("content-encoding", "content-language", "content-length", "content-md5", "content-type"),
    *("date", "if-modified-since", "if-match", "if-none-match", "if-unmodified-since", "range"),
)
_WHEN = "Mon, 01 Jan 2024 00:00:00 GMT"


def signature(verb: str, url: str, headers: Mapping[str, str]) -> str:
    """What the header `Authorization` must be, as Azure's page on shared keys says."""
    told = {name.lower(): value for name, value in headers.items()}
    plain = [told.get(name, "") for name in _SIGNED]
    plain[2] = "" if plain[2] == "0" else plain[2]
    own = [f"{name}:{told[name]}" for name in sorted(told) if name.startswith("x-ms-")]
    parts = urlsplit(url)
    asked = sorted(parse_qsl(parts.query, keep_blank_values=True))
    resource = [f"/{ACCOUNT}{parts.path}", *(f"{name.lower()}:{value}" for name, value in asked)]
    text = "\n".join([verb, *plain, *own, *resource])
    digest = hmac.new(base64.b64decode(KEY), text.encode(), hashlib.sha256).digest()
    return f"SharedKey {ACCOUNT}:{base64.b64encode(digest).decode()}"


def _fault(code: str) -> bytes:
    return f"<Error><Code>{code}</Code><Message>{code}</Message></Error>".encode()


class _Azure(Handler):
    def _is_signed(self) -> bool:
        headers = dict(self.headers.items())
        if self.headers.get("Authorization") == signature(self.command, self.path, headers):
            return True
        self.read_body()
        self.answer(
            403, _fault("AuthenticationFailed"), {"x-ms-error-code": "AuthenticationFailed"}
        )
        return False

    def do_PUT(self) -> None:  # noqa: N802 - as http.server calls it
        if not self._is_signed():
            return
        if "comp" in self.query:
            self._put_blocks()
            return
        only_new = self.headers.get("If-None-Match") == "*"
        number = self.objects.put(self.place, self.read_body(), over=0 if only_new else None)
        if number is None:
            self.answer(409, _fault("BlobAlreadyExists"), {"x-ms-error-code": "BlobAlreadyExists"})
        else:
            self.answer(201, headers={"ETag": f'"0x{number:X}"', "Last-Modified": _WHEN})

    def _put_blocks(self) -> None:
        """One of an object, or the list of all, which makes the object."""
        body = self.read_body()
        if self.query["comp"] == "block":
            self.objects.put_part(self.place, self.query["blockid"], body)
            self.answer(201)
            return
        names = re.findall(r"<Uncommitted>([^<]*)</Uncommitted>", body.decode())
        number = self.objects.join(self.place, self.place, names)
        if number is None:
            self.answer(400, _fault("InvalidBlockList"), {"x-ms-error-code": "InvalidBlockList"})
        else:
            self.answer(201, headers={"ETag": f'"0x{number:X}"', "Last-Modified": _WHEN})

    def do_GET(self) -> None:  # noqa: N802 - as http.server calls it
        if not self._is_signed():
            return
        if self.query.get("comp") == "list":
            self._list()
            return
        found = self.objects.get(self.place)
        if found is None:
            self.answer(404, _fault("BlobNotFound"), {"x-ms-error-code": "BlobNotFound"})
            return
        told = {"ETag": f'"0x{found[1]:X}"', "Last-Modified": _WHEN, "x-ms-blob-type": "BlockBlob"}
        self.answer_object(found[0], told)

    do_HEAD = do_GET  # noqa: N815 - as http.server calls it

    def _list(self) -> None:
        prefix, marker = self.query.get("prefix", ""), self.query.get("marker", "")
        page, has_more = self.objects.page(self.place, prefix, marker)
        blobs = "".join(
            f"<Blob><Name>{escape(name)}</Name><Properties><Last-Modified>{_WHEN}</Last-Modified>"
            f"<Etag>0x1</Etag><Content-Length>{size}</Content-Length>"
            f"<Content-Type>application/octet-stream</Content-Type></Properties></Blob>"
            for name, size in page.items()
        )
        following = escape([*page][-1]) if has_more else ""
        self.answer(
            200,
            f'<?xml version="1.0" encoding="utf-8"?><EnumerationResults><Blobs>{blobs}</Blobs>'
            f"<NextMarker>{following}</NextMarker></EnumerationResults>".encode(),
            {"Content-Type": "application/xml"},
        )

    def do_POST(self) -> None:  # noqa: N802 - as http.server calls it
        """A batch: requests to delete, each in a part and signed by itself."""
        if not self._is_signed():
            return
        kind = self.headers["Content-Type"]
        whole = BytesParser().parsebytes(
            f"Content-Type: {kind}\r\n\r\n".encode() + self.read_body()
        )
        border = f"--{whole.get_boundary()}"
        answers = []
        for part in whole.walk():
            if part.is_multipart():
                continue
            head = f"Content-Type: application/http\r\nContent-ID: {part['Content-ID']}"
            answers.append(f"{border}\r\n{head}\r\n\r\n{self._deleted(str(part.get_payload()))}")
        body = "".join(answers) + f"{border}--\r\n"
        self.answer(202, body.encode(), {"Content-Type": kind})

    def _deleted(self, request: str) -> str:
        line, _, rest = request.partition("\r\n")
        verb, url, _ = line.split(" ")
        told = dict(field.split(": ", 1) for field in rest.split("\r\n") if field)
        if told.pop("Authorization") != signature(verb, url, told):
            return "HTTP/1.1 403 Forbidden\r\nx-ms-error-code: AuthenticationFailed\r\n\r\n"
        if self.objects.delete(unquote(urlsplit(url).path)):
            return "HTTP/1.1 202 Accepted\r\n\r\n"
        reason = "The specified blob does not exist."
        return f"HTTP/1.1 404 {reason}\r\nx-ms-error-code: BlobNotFound\r\n\r\n"


if __name__ == "__main__":
    serve(_Azure)
