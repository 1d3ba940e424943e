"""A Google Cloud Storage of one process and no disk: put, put only if absent, get, delete and list,
as the XML protocol has them. `python -m omnirelay.testing.google_objects PORT`."""

from xml.sax.saxutils import escape

from omnirelay.testing.memory_objects import Handler, serve


class _Google(Handler):
    def do_PUT(self) -> None:  # noqa: N802 - as http.server calls it
        body = self.read_body()
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
        self.answer(200, found[0], headers)

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
