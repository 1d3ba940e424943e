"""The pages `/openapi.json` and `/docs`: what is served here, for programs and for people."""

import base64
import hashlib
import shlex
from html import escape
from string import Template

import msgspec

from omnirelay.rpc.procedure import Kind, Procedure, Registry
from omnirelay.transports.http_openapi import Json, document, example, fields, path_of
from omnirelay.transports.http_options import WrongMethod
from omnirelay.transports.http_pages import Page, PageReply, PageRequest

_STYLE = """
body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;
color:#1d2330;background:#fff}
h1{font-size:1.6rem}h2{font-size:1.2rem;margin-top:2.5rem;border-bottom:1px solid #d5dae3}
h3{font-size:1rem;margin:1.5rem 0 .2rem}p{margin:.2rem 0}
pre{background:#f3f5f9;padding:.6rem .8rem;overflow-x:auto;border-radius:4px;margin:.4rem 0}
code,pre{font:13px/1.45 ui-monospace,monospace}.kind{color:#5a6478;font-weight:normal}
@media(prefers-color-scheme:dark){body{color:#e4e8f0;background:#14181f}pre{background:#1f2530}
h2{border-color:#333c4a}.kind{color:#9aa5b8}a{color:#8ab4ff}}
"""
_STYLE_HASH = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
_POLICY = (
    f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; base-uri 'none'; "
    f"form-action 'none'; frame-ancestors 'none'"
)
_SHOWN_URL = "http://127.0.0.1:7400"
_PAGE = Template(
    '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>$title</title>'
    '<meta name="viewport" content="width=device-width,initial-scale=1">'
    "<style>$style</style></head><body><h1>$title $version</h1>"
    '<p>Machine-readable: <a href="/openapi.json">/openapi.json</a>. Every call is also '
    "<code>POST /</code> with the header <code>Rpc-Procedure: namespace::verb</code>.</p>"
    "$parts</body></html>"
)


class Description:
    """Made when first asked for, and again when procedures were added since."""

    def __init__(self, registry: Registry, *, title: str, version: str) -> None:
        self._registry = registry
        self._title = title
        self._version = version
        self._known: tuple[str, ...] = ()
        self._openapi = b""
        self._docs = b""

    def pages(self) -> dict[str, Page]:
        return {"/openapi.json": self._show_openapi, "/docs": self._show_docs}

    async def _show_openapi(self, request: PageRequest) -> PageReply:
        self._refresh(request)
        return PageReply(headers={"content-type": "application/json"}, body=self._openapi)

    async def _show_docs(self, request: PageRequest) -> PageReply:
        self._refresh(request)
        headers = {
            "content-type": "text/html; charset=utf-8",
            "content-security-policy": _POLICY,
            "referrer-policy": "no-referrer",
        }
        return PageReply(headers=headers, body=self._docs)

    def _refresh(self, request: PageRequest) -> None:
        if request.method != "GET":
            raise WrongMethod(request.method, "GET")
        procedures = sorted(self._registry, key=lambda one: one.name)
        names = tuple(one.name for one in procedures)
        if names == self._known:
            return
        described = document(procedures, title=self._title, version=self._version)
        self._openapi = msgspec.json.encode(described)
        self._docs = _page(procedures, described)
        self._known = names


def _page(procedures: list[Procedure], described: Json) -> bytes:
    parts: list[str] = []
    namespace = ""
    for one in procedures:
        if one.namespace != namespace:
            namespace = one.namespace
            parts.append(f"<h2>{escape(namespace)}</h2>")
        parts.append(_part(one, described))
    info = described["info"]
    return _PAGE.substitute(
        title=escape(info["title"]),
        version=escape(info["version"]),
        style=_STYLE,
        parts="".join(parts),
    ).encode()


def _part(procedure: Procedure, described: Json) -> str:
    head = f'<h3>{escape(procedure.verb)} <span class="kind">{escape(procedure.kind)}</span></h3>'
    summary = f"<p>{escape(procedure.summary)}</p>" if procedure.summary else ""
    if procedure.kind is Kind.DUPLEX:
        return f"{head}{summary}<p>Both ways at once: over gRPC or the stream, not over HTTP.</p>"
    bodies: Json = described["paths"][path_of(procedure)]["post"]["requestBody"]["content"]
    schema: Json = next(iter(bodies.values()))["schema"]
    schemas: Json = described["components"]["schemas"]
    asked = ", ".join(fields(schema, schemas))
    takes = f"<p>Takes <code>{{{escape(asked)}}}</code></p>"
    body = msgspec.json.encode(example(schema, schemas)).decode()
    return f"{head}{summary}{takes}<pre>{escape(_curl(procedure, body))}</pre>"


def _curl(procedure: Procedure, body: str) -> str:
    url = shlex.quote(_SHOWN_URL + path_of(procedure))
    if procedure.kind is Kind.SERVER_STREAM:
        return f"curl -N {url}"
    return f"curl {url} \\\n  -d {shlex.quote(body)}"
