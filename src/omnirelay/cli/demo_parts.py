"""The demo's producers and workers: ordinary users of the SDK, each a process of its own."""

import asyncio
import sys
from collections.abc import AsyncIterator, Mapping
from typing import Final

from omnirelay.cli.calling import Caller
from omnirelay.cli.demo_lines import END, FINISH, GO, HANG, KEEP, TRY, say
from omnirelay.mesh import wire
from omnirelay.model.errors import OmniRelayError, StaleToken
from omnirelay.node.keys import ClientSettings
from omnirelay.sdk.client import Relay
from omnirelay.sdk.connect import connect
from omnirelay.sdk.lease import Lease
from omnirelay.sdk.worker import Worker

RESOURCE_TYPES: Final = ("table", "cdc-shard", "saga-step")
WORK_S: Final = 0.12
"""Stands for the real thing."""

Urls = Mapping[str, str]
"""Wire to address."""


async def produce(name: str, via: str, urls: Urls) -> None:
    """One item for each word. An enqueue that gets no answer is repeated by the SDK, under its
    request id, so that it is neither lost nor doubled."""
    async with connect(urls[via], peer_id=name) as relay:
        await relay.stats()
        say("ready")
        number = 0
        async for word in _words():
            if word != GO:
                return
            number += 1
            kind = RESOURCE_TYPES[number % len(RESOURCE_TYPES)]
            accepted = await relay.enqueue(
                kind, f"{name}-{number}", body=b"compact", request_id=f"{name}-{number}"
            )
            say("enqueued", accepted.sequence_id)


async def work(name: str, via: str, urls: Urls) -> None:
    async with connect(urls[via], peer_id=name) as relay:
        await relay.stats()
        await _Working(relay, urls).run()


class _Working:
    def __init__(self, relay: Relay, urls: Urls) -> None:
        self._urls = urls
        self._worker = Worker(relay, concurrency=1, stop_timeout=1.0)
        for kind in RESOURCE_TYPES:
            self._worker.handles(kind)(self._handle)
        self._is_to_hang = False
        self._hung: Lease | None = None
        self._kept = 0
        self._may_finish = asyncio.Event()

    async def run(self) -> None:
        say("ready")
        obeying = asyncio.create_task(self._obey())
        try:
            await self._worker.run(handle_signals=True)
        finally:
            obeying.cancel()
            await asyncio.gather(obeying, return_exceptions=True)

    async def _handle(self, lease: Lease) -> None:
        if self._is_to_hang:
            self._is_to_hang, self._hung = False, lease
            say("hanging", lease.sequence_id, lease.fence)
            await asyncio.Event().wait()
        say("holding", lease.sequence_id, lease.fence)
        await asyncio.sleep(WORK_S)
        if lease.sequence_id == self._kept:
            await self._may_finish.wait()
        await lease.complete()
        say("completed", lease.sequence_id, lease.fence)

    async def _obey(self) -> None:
        async for text in _words():
            word, _, item = text.partition(" ")
            if word == HANG:
                self._is_to_hang = True
            elif word == KEEP:
                self._kept = int(item)
            elif word == FINISH:
                self._may_finish.set()
            elif word == TRY and self._hung is not None:
                await _finish_late(self._hung, self._urls)
        self._worker.stop()


async def _finish_late(lease: Lease, urls: Urls) -> None:
    """With the token of old, as a process would that does not know how long it was away."""
    for via, url in urls.items():
        async with Caller(ClientSettings(url=url)) as caller:
            try:
                await caller.ask("complete", wire.TokenRequest(lease.token), wire.TokenResponse)
                say("answered", lease.sequence_id, wire=via, status="OK")
            except StaleToken as refusal:
                fence = refusal.current_fence or 0
                say("refused", lease.sequence_id, fence, wire=via, status=refusal.status)
            except OmniRelayError as error:
                say("answered", lease.sequence_id, wire=via, status=error.status)


async def _words() -> AsyncIterator[str]:
    """Ends with the pipe, too: nobody is left to work for."""
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), sys.stdin
    )
    while (line := await reader.readline()) and (word := line.decode().strip()) != END:
        yield word


ROLES: Final = {"producer": produce, "worker": work}
