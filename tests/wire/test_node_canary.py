"""Secrets that a node is shown are searched for in everything it writes and says: found nowhere."""

import logging
from collections.abc import Iterator
from contextlib import aclosing
from pathlib import Path

import msgspec
import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from omnirelay.identity.tls import TlsSettings
from omnirelay.journal.events import Event
from omnirelay.mesh import wire
from omnirelay.model.errors import OmniRelayError
from omnirelay.node.node import Node
from omnirelay.node.run import write_ready_file
from omnirelay.node.settings import NamespaceSettings
from omnirelay.testing import figures
from omnirelay.testing.authority import Authority
from omnirelay.testing.issuers import Signer
from omnirelay.testing.raw_http import RawHttp
from tests.cli.command import omnirelay
from tests.wire.guarded_node import OPERATOR, PEER, Guard
from tests.wire.real_node import NAMESPACE, WIRES, caller, node

TRACE = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr("omnirelay.rpc.telemetry.trace.get_tracer", provider.get_tracer)
    yield exporter
    provider.shutdown()


class Canaries:
    """Everything secret that goes in, and everything that came out."""

    def __init__(self) -> None:
        self.secrets: set[str] = set()
        self.found: dict[str, bytes] = {}

    def hide(self, secret: str) -> str:
        self.secrets.add(secret)
        return secret

    def hide_key(self, pem: bytes) -> None:
        self.secrets.update(line for line in pem.decode().splitlines() if "-----" not in line)

    def note(self, where: str, said: object) -> None:
        text = said if isinstance(said, bytes) else repr(said).encode()
        self.found[where] = self.found.get(where, b"") + text

    def note_folder(self, folder: Path) -> None:
        for path in folder.rglob("*"):
            if path.is_file():
                self.note(f"file {path.name}", path.read_bytes())

    def leaks(self) -> list[str]:
        """The signature alone would be worth stealing too."""
        parts = {part for secret in self.secrets for part in (secret, secret.rpartition(".")[2])}
        return [
            f"{where}: {part[:12]}…"
            for where, said in self.found.items()
            for part in parts
            if part and part.encode() in said
        ]


async def play(opened: Node, guard: Guard, canaries: Canaries) -> None:
    """Good calls, refused calls and forged calls, over every wire, each with its own token."""
    for over in WIRES:
        good = canaries.hide(guard.token(PEER, jti=f"id-{over}"))
        cookie = canaries.hide(f"sess10n-{over}")
        headers = {"authorization": f"Bearer {good}", "cookie": cookie, **TRACE}
        async with caller(opened, over, headers=headers) as call:
            await call.enqueue(f"item-{over}", body=b"x")
            lease = await call.lease(peer_id="w")
            token = wire.TokenRequest(lease.token)
            for verb in ("heartbeat", "complete", "release"):
                try:
                    canaries.note("reply", await call(verb, token))
                except OmniRelayError as error:
                    canaries.note("error", (error, error.details, error.code))
            canaries.note("reply", lease)
            events = await call.client.server_stream(
                "events", wire.EventsRequest(follow=False), Event
            )
            async with aclosing(events):
                canaries.note("events", [event async for event in events])
        for bad in (
            Signer(guard.signer.name).token(sub=PEER),
            guard.token(PEER, aud="somebody else"),
            guard.token(PEER, exp=1),
            guard.token("nobody"),
        ):
            forged = {"authorization": f"Bearer {canaries.hide(bad)}", **TRACE}
            async with caller(opened, over, headers=forged) as call:
                with pytest.raises(OmniRelayError) as refused:
                    await call.stats()
            canaries.note("error", (refused.value, refused.value.details))


async def look_through(opened: Node, guard: Guard, canaries: Canaries) -> None:
    secret = canaries.hide(guard.token(OPERATOR))
    pages = [
        "/metrics",
        "/omnirelay/introspect",
        "/readyz",
        "/openapi.json",
        "/omnirelay/control/shards",
        "/omnirelay/control/peers",
        "/omnirelay/control/lease-health",
        "/omnirelay/control/overview",
    ]
    async with RawHttp(opened.urls["http"]) as raw:
        for path in pages:
            canaries.note(path, await raw.ask("GET", path, authorization=f"Bearer {secret}"))
        # In the wrong places: refused all the same.
        answer = await raw.ask("POST", "/v1/resourcelease/stats", authorization=secret)
        canaries.note("error", answer)
        answer = await raw.ask("POST", f"/v1/resourcelease/stats?access_token={secret}")
        canaries.note("error", answer)


async def test_no_secret_is_written_or_said_anywhere(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, spans: InMemorySpanExporter
) -> None:
    caplog.set_level(logging.DEBUG)
    caplog.set_level(logging.DEBUG, "omnirelay")
    canaries, guard = Canaries(), Guard(tmp_path)
    data = tmp_path / "data"
    own = {NAMESPACE: NamespaceSettings()}
    async with node(
        identity=guard.identity(), namespaces=own, journal=None, data=str(data)
    ) as opened:
        write_ready_file(tmp_path / "ready.json", opened)
        await play(opened, guard, canaries)
        await look_through(opened, guard, canaries)
        canaries.note_folder(data)  # with the log that is not in the database yet
    canaries.note_folder(data)
    canaries.note("ready file", (tmp_path / "ready.json").read_bytes())
    canaries.note("log", caplog.text)
    canaries.note("log records", [record.__dict__ for record in caplog.records])
    for span in spans.get_finished_spans():
        canaries.note("spans", span.to_json())
    assert {"reply", "error", "events", "log", "spans", "/metrics"} <= canaries.found.keys()
    assert any(where.endswith("-wal") for where in canaries.found), canaries.found.keys()
    assert b"incident" not in canaries.found["error"]
    assert b"item-http" in canaries.found["file resourcelease.db"] + canaries.found["events"]
    assert b"LeaseGranted" in canaries.found["events"]
    leaks = canaries.leaks()
    figures.record("identity", secrets_found=len(leaks))
    assert leaks == []


async def test_no_private_key_is_said_by_a_node_that_has_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    canaries, guard = Canaries(), Guard(tmp_path)
    server = Authority().issue("node", ["localhost"], usage="server")
    cert, key = server.write(tmp_path, "server")
    canaries.hide_key(server.key_pem)
    tls = TlsSettings(cert_file=cert, key_file=key)
    settings = tmp_path / "omnirelay.toml"
    issuer = guard.identity().issuers[0]
    settings.write_text(
        f'[identity.tls]\ncert_file = "{cert}"\nkey_file = "{key}"\n'
        f'[[identity.issuers]]\nissuer = "{issuer.issuer}"\naudience = "omnirelay"\n'
        f'jwks_file = "{guard.keys}"\nalgorithms = ["ES256"]\n'
    )
    token = canaries.hide(guard.token(OPERATOR))
    async with node(identity=guard.identity(tls=tls)) as opened:
        write_ready_file(tmp_path / "ready.json", opened)
        canaries.note("node", (opened.settings, opened.urls, vars(opened)))
    for words in (("config", "show"), ("config", "show", "--json"), ("config", "validate")):
        ended = omnirelay(*words, folder=tmp_path, OMNIRELAY_TOKEN=token)
        canaries.note(" ".join(words), ended.out + ended.err)
        assert ended.code == 0, ended.err
    canaries.note("ready file", (tmp_path / "ready.json").read_bytes())
    canaries.note("log", caplog.text)
    assert b"key_file" in canaries.found["config show"]
    leaks = canaries.leaks()
    figures.record("identity", secrets_found=len(leaks))
    assert leaks == []


def test_the_search_finds_what_is_there() -> None:
    canaries = Canaries()
    canaries.hide("aaa.bbb.signature")
    canaries.note("somewhere", msgspec.json.encode({"x": "only the signature"}))
    assert canaries.leaks() == ["somewhere: signature…"]
