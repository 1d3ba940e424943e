"""A Google Cloud Storage of one process and no disk: put (in parts too), put only if absent, get,
delete and list, as the XML protocol has them. `python -m omnirelay.testing.google_objects PORT`."""

import itertools
import re
from xml.sax.saxutils import escape

from omnirelay.testing.memory_objects import Handler, serve

_uploads = itertools.count(1)


class _Google(Handler):
    def do_POST(self) -> None:  # noqa: N802 - as http.server calls it
        """The beginning of an object in parts, or its end, which names them."""
        body, query = self.read_body(), self.query
        if "uploads" in query:
            shown = f"<UploadId>{next(_uploads)}</UploadId>"
            self.answer(
                200,
                f"<InitiateMultipartUploadResult>{shown}</InitiateMultipartUploadResult>".encode(),
            )
            return
        parts = re.findall(r"<PartNumber>(\d+)</PartNumber>", body.decode())
        generation = self.objects.join(self.place, query["uploadId"], parts)
        if generation is None:
            self.answer(400, b"<Error><Code>InvalidPart</Code></Error>")
            return
        told = {"x-goog-generation": str(generation)}
        shown = f"<ETag>{generation}</ETag>"
        self.answer(
            200,
            f"<CompleteMultipartUploadResult>{shown}</CompleteMultipartUploadResult>".encode(),
            told,
        )

    def do_PUT(self) -> None:  # noqa: N802 - as http.server calls it
        body = self.read_body()
        if "uploadId" in self.query:
            self.objects.put_part(self.query["uploadId"], self.query["partNumber"], body)
            self.answer(200, headers={"ETag": f'"{self.query["partNumber"]}"'})
            return
        wanted = self.headers.get("x-goog-if-generation-match")
        generation = self.objects.put(
            self.place, body, over=None if wanted is None else int(wanted)
        )
        if generation is None:
            self.answer(412, b"<Error><Code>PreconditionFailed</Code></Error>")
        else:
            told = {"ETag": f'"{generation}"', "x-goog-generation": str(generation)}
            self.answer(200, headers=told)

    def do_GET(self) -> None:  # noqa: N802 - as http.server calls it
        if self.place.count("/") <= 1:
            self._list()
            return
        found = self.objects.get(self.place)
        if found is None:
            self.answer(404, b"<Error><Code>NoSuchKey</Code></Error>")
            return
        headers = {
            "ETag": f'"{found[1]}"',
            "Last-Modified": "Mon, 01 Jan 2024 00:00:00 GMT",
            "x-goog-generation": str(found[1]),
        }
        self.answer_object(found[0], headers)

    do_HEAD = do_GET  # noqa: N815 - as http.server calls it

    def do_DELETE(self) -> None:  # noqa: N802 - as http.server calls it
        self.answer(204 if self.objects.delete(self.place) else 404)

    def _list(self) -> None:
        query = self.query
        after = max(query.get("start-after", ""), query.get("continuation-token", ""))
        page, has_more = self.objects.page(self.place, query.get("prefix", ""), after)
        items = "".join(
            f"<Contents><Key>{escape(name)}</Key><Size>{size}</Size>"
            f"<LastModified>2024-01-01T00:00:00Z</LastModified><ETag>1</ETag></Contents>"
            for name, size in page.items()
        )
        end = ""
        if has_more:
            end = f"<NextContinuationToken>{escape([*page][-1])}</NextContinuationToken>"
        self.answer(200, f"<ListBucketResult>{items}{end}</ListBucketResult>".encode())


if __name__ == "__main__":
    serve(_Google)
