"""Chromium by its own protocol: open a page at a width, ask it, and hear all it complains of."""

import asyncio
import base64
import json
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp

from tests.browser.chromium import Chromium

ANSWER_S = 20.0
_LISTENING = re.compile(r"DevTools listening on (ws://\S+)")
Message = dict[str, Any]  # Any: the protocol's JSON


class PageFailed(Exception):
    """A script that was asked in the page has thrown, or the browser has refused."""


class Browser:
    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._asked: dict[int, asyncio.Future[Message]] = {}
        self._pages: dict[str, Page] = {}
        self._count = 0

    async def listen(self) -> None:
        async for message in self._socket:
            said: Message = json.loads(message.data)
            if "id" in said:
                waiting = self._asked.pop(said["id"], None)
                if waiting is not None and not waiting.done():
                    waiting.set_result(said)
            elif page := self._pages.get(said.get("sessionId", "")):
                page.heard(said["method"], said["params"])

    async def ask(self, method: str, session: str | None = None, **params: Any) -> Message:
        """Any: the parameters of the protocol."""
        self._count += 1
        number = self._count
        answer = self._asked[number] = asyncio.get_running_loop().create_future()
        message = {"id": number, "method": method, "params": params}
        await self._socket.send_json(message | ({"sessionId": session} if session else {}))
        said = await asyncio.wait_for(answer, ANSWER_S)
        if "error" in said:
            raise PageFailed(f"{method}: {said['error']['message']}")
        result: Message = said["result"]
        return result

    async def page(
        self, *, width: int, height: int = 900, media: Mapping[str, str] | None = None
    ) -> "Page":
        """`media`: features as `prefers-color-scheme`; `type` is screen or print."""
        media = media or {}
        target = await self.ask("Target.createTarget", url="about:blank")
        attached = await self.ask(
            "Target.attachToTarget", targetId=target["targetId"], flatten=True
        )
        page = Page(self, attached["sessionId"], width)
        self._pages[page.session] = page
        for domain in ("Page", "Runtime", "Log", "Network"):
            await page.ask(f"{domain}.enable")
        await page.ask(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        features = [
            {"name": name, "value": value} for name, value in media.items() if name != "type"
        ]
        await page.ask(
            "Emulation.setEmulatedMedia", media=media.get("type", "screen"), features=features
        )
        return page


class Page:
    def __init__(self, browser: Browser, session: str, width: int) -> None:
        self._browser = browser
        self.session = session
        self.width = width
        self.complaints: list[str] = []
        """Errors and warnings of its console, exceptions, refusals of its policy."""
        self.requests: list[str] = []
        self._loaded = asyncio.Event()

    def heard(self, event: str, params: Message) -> None:
        if event == "Page.loadEventFired":
            self._loaded.set()
        elif event == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])
        elif event == "Runtime.exceptionThrown":
            self.complaints.append(str(params["exceptionDetails"]))
        elif event == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            self.complaints.append(params["entry"]["text"])
        elif event == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning"):
            self.complaints.append(str(params["args"]))

    async def ask(self, method: str, **params: Any) -> Message:
        """Any: the parameters of the protocol."""
        return await self._browser.ask(method, self.session, **params)

    async def open(self, url: str) -> None:
        self._loaded.clear()
        await self.ask("Page.navigate", url=url)
        await asyncio.wait_for(self._loaded.wait(), ANSWER_S)

    async def evaluate(self, script: str) -> Any:
        """Any: whatever JSON the script gives, a promise's in the end."""
        said = await self.ask(
            "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True
        )
        if "exceptionDetails" in said:
            raise PageFailed(str(said["exceptionDetails"]))
        return said["result"].get("value")

    async def until(self, condition: str) -> None:
        """Until the script's condition holds, looked at once a frame."""
        await self.evaluate(
            "new Promise(done => { const look = () => "
            f"({condition}) ? done(true) : setTimeout(look, 50); look(); }})"
        )

    async def overflow(self) -> list[str]:
        """What sticks out of the page to the side, though nothing around it scrolls."""
        found: list[str] = await self.evaluate(_OVERFLOW)
        return found

    async def screenshot(self, path: Path) -> None:
        said = await self.ask("Page.captureScreenshot", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(said["data"]))

    async def printed(self) -> bytes:
        """The PDF that the browser's own printing makes of it, on A4."""
        paper = {"paperWidth": 8.27, "paperHeight": 11.69, "printBackground": True}
        said = await self.ask("Page.printToPDF", **paper)
        return base64.b64decode(said["data"])


_OVERFLOW = """(() => {
  const width = document.documentElement.clientWidth, out = [];
  if (document.documentElement.scrollWidth > width)
    out.push(`the page is ${document.documentElement.scrollWidth} wide, the screen ${width}`);
  const scrolls = (one) => {
    for (let up = one.parentElement; up; up = up.parentElement)
      if (['auto', 'scroll', 'hidden'].includes(getComputedStyle(up).overflowX)) return true;
    return false;
  };
  for (const one of document.body.querySelectorAll('*')) {
    const box = one.getBoundingClientRect();
    if (box.width && box.right > width + 1 && !scrolls(one) && !one.closest('svg > *'))
      out.push(`${one.tagName}.${one.className.baseVal ?? one.className} ends at ${box.right}`);
  }
  return out.slice(0, 10);
})()"""


@asynccontextmanager
async def browsing(chromium: Chromium, profile: Path) -> AsyncIterator[Browser]:
    process = await asyncio.create_subprocess_exec(
        *chromium.command(profile),
        env=chromium.environment,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        address = await asyncio.wait_for(_address(process), ANSWER_S)
        async with (
            aiohttp.ClientSession() as session,
            session.ws_connect(address, max_msg_size=0) as socket,
        ):
            browser = Browser(socket)
            listening = asyncio.create_task(browser.listen())
            draining = asyncio.create_task(_drain(process))
            try:
                yield browser
            finally:
                for task in (listening, draining):
                    task.cancel()
                await asyncio.gather(listening, draining, return_exceptions=True)
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        # Else the transport of the pipe is closed after its loop.
        process._transport.close()  # type: ignore[attr-defined]


async def _address(process: asyncio.subprocess.Process) -> str:
    assert process.stderr is not None
    said = []
    while line := (await process.stderr.readline()).decode(errors="replace"):
        if found := _LISTENING.search(line):
            return found[1]
        said.append(line)
    raise PageFailed(f"Chromium does not start: {''.join(said[-5:])}")


async def _drain(process: asyncio.subprocess.Process) -> None:
    assert process.stderr is not None
    while await process.stderr.readline():
        pass
