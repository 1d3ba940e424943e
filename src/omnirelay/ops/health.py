"""`/healthz` and `/readyz`: for load balancers and supervisors, who prove nothing."""

import re

from omnirelay.ops.view import NodeView
from omnirelay.transports.http_pages import PageReply, PageRequest

_TEXT = {"content-type": "text/plain; charset=utf-8"}
_ADDRESS = re.compile(r"\b([A-Za-z][A-Za-z0-9+.-]*):/{1,3}[^\s'\",;]+")
_PATH = re.compile(r"(?<![\w/:.])(?:/[\w.@%+-]+){2,}")
_SECRET = re.compile(
    r"(?i)\b(\w*(?:password|passwd|secret|token|key|signature|sig)\w*)\s*[=:]\s*\S+"
)
_WORDS = 300


def in_words(reason: str) -> str:
    """The reason without addresses, paths or what looks like a secret: anybody may read it."""
    text = _SECRET.sub(r"\1=…", reason)
    text = _ADDRESS.sub(r"\1:…", text)
    text = _PATH.sub("…", text)
    text = "".join(letter if letter.isprintable() else " " for letter in text)
    return text if len(text) <= _WORDS else f"{text[: _WORDS - 1]}…"


class Health:
    def __init__(self, node: NodeView) -> None:
        self._node = node

    async def healthz(self, request: PageRequest) -> PageReply:
        return PageReply(headers=_TEXT, body=b"ok\n")

    async def readyz(self, request: PageRequest) -> PageReply:
        trouble = self._node.trouble
        if trouble is None:
            return PageReply(headers=_TEXT, body=b"ready\n")
        return PageReply(
            status=503,
            headers={**_TEXT, "retry-after": "1"},
            body=f"not ready: {in_words(trouble)}\n".encode(),
        )
