"""The dashboard at `/`: one page and its files, which ask the control plane once a second.

Names of users reach it as JSON and become text there. Its policy forbids whatever could make them
more: scripts and styles other than its own files, and text that is parsed as HTML.
"""

from importlib.resources import files

from omnirelay.ops.door import Shown
from omnirelay.transports.http_options import UnknownPath
from omnirelay.transports.http_pages import PageReply, PageRequest

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
_KINDS = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
_BELOW = "/assets/"


def dashboard_pages() -> dict[str, Shown]:
    """Read once: a request never names a file of the disk."""
    replies = {}
    for file in files("omnirelay.ops").joinpath("assets").iterdir():
        kind = _KINDS.get(file.name[file.name.rfind(".") :])
        if kind is not None:
            replies[file.name] = _reply(kind, file.read_bytes())

    async def page(request: PageRequest) -> PageReply:
        return replies["index.html"]

    async def asset(request: PageRequest) -> PageReply:
        reply = replies.get(request.path.removeprefix(_BELOW))
        if reply is None:
            raise UnknownPath(f"nothing is at {request.path[:200]!r}")
        return reply

    return {"/": page, f"{_BELOW}*": asset}


def _reply(kind: str, body: bytes) -> PageReply:
    headers = {
        "content-type": kind,
        "content-security-policy": POLICY,
        "cross-origin-opener-policy": "same-origin",
        "cross-origin-resource-policy": "same-origin",
        "x-frame-options": "DENY",
    }
    return PageReply(headers=headers, body=body)
