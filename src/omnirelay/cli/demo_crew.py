"""The demo's processes: started, heard, told, killed. None outlives the demo."""

import asyncio
import os
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import msgspec

from omnirelay.cli.demo_lines import Line, heard
from omnirelay.cli.ending import CommandFailed

WIRES: Final = ("http", "grpc", "stream")
STARTS: Final = 5
"""How often a node is started that does not come up: its port may be taken for a moment."""
# Hears which processes run. Its pipe closes while it lives only if the demo itself was killed: then
# nobody else would end them.
GUARD: Final = """
while read -r sign pid; do
  case $sign in
    +) all="$all $pid " ;;
    -) all="${all%% $pid *}${all#* $pid }" ;;
  esac
done
test -z "$all" || kill -9 $all
"""
CONFIG: Final = """\
# Leases so short that nobody has to wait long for one to expire, and enough attempts that a slow
# machine makes the demo slow, not wrong.
[namespaces.resourcelease.options]
lease_duration_ms = 1500
max_attempts = 100
"""


class Part:
    """One process. `state` is for people."""

    def __init__(self, name: str, via: str, process: Process, log: Path) -> None:
        self.name = name
        self.via = via
        self.log = log
        self.lines: list[Line] = []
        self.state = "running"
        self.is_to_end = False
        self._process = process

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        return self._process.returncode

    def last(self, said: str) -> Line | None:
        return next((line for line in reversed(self.lines) if line.said == said), None)

    def tell(self, word: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{word}\n".encode())

    def signal(self, number: signal.Signals, state: str) -> None:
        """A process that has ended keeps its id until it is waited for, so no other is hit."""
        self.state = state
        if number in (signal.SIGKILL, signal.SIGTERM):
            self.is_to_end = True
        if self._process.returncode is None:
            os.kill(self._process.pid, number)

    async def wait(self) -> int:
        return await self._process.wait()

    async def listen(self, note: Callable[["Part", Line], None]) -> None:
        """Until it ends; also what it said before it died and nobody had read by then."""
        assert self._process.stdout is not None
        while line := await self._process.stdout.readline():
            if line.startswith(b"{") and line.endswith(b"\n"):  # else it died amid the word
                self.lines.append(heard(line))
                note(self, self.lines[-1])

    def last_words(self) -> str:
        """What it complained of, for whoever has to find out why it ended."""
        lines = self.log.read_text(errors="replace").strip().splitlines()
        return lines[-1][:300] if lines else "without a word"


class Crew:
    """Use it as a context: leaving it ends every process, last started first."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.urls: dict[str, str] = {}
        self.parts: dict[str, Part] = {}
        self.told: list[Callable[[Part, Line], None]] = []
        self._changed = asyncio.Event()
        self._listening: list[asyncio.Task[None]] = []
        self._failure: CommandFailed | None = None
        self._guard: Process | None = None

    async def __aenter__(self) -> "Crew":
        config = self.folder / "omnirelay.toml"
        await asyncio.to_thread(config.write_text, CONFIG)
        self._guard = await asyncio.create_subprocess_exec(
            "/bin/sh", "-c", GUARD, stdin=PIPE, stderr=DEVNULL, start_new_session=True
        )
        return self

    async def __aexit__(self, *error: object) -> None:
        for part in reversed(self.parts.values()):
            if part.exit_code is None:
                part.signal(signal.SIGKILL, "ended")
            await part.wait()
        for listening in self._listening:
            listening.cancel()
        await asyncio.gather(*self._listening, return_exceptions=True)
        assert self._guard is not None
        self._guard.kill()
        await self._guard.wait()

    # -- waiting ------------------------------------------------------------------------------

    def changed(self) -> None:
        self._changed.set()

    async def until(self, check: Callable[[], bool]) -> None:
        """Raises CommandFailed if meanwhile a process ends that should not."""
        while not check():
            if self._failure is not None:
                raise self._failure
            self._changed.clear()
            await self._changed.wait()

    async def _hear(self, part: Part) -> None:
        await part.listen(self._note)
        code = await part.wait()
        self._tell_guard("-", part.pid)
        if code != 0 and not part.is_to_end:
            why = await asyncio.to_thread(part.last_words)
            self._failure = CommandFailed(f"{part.name} ended by itself with {code}: {why}")
        self.changed()

    def _note(self, part: Part, line: Line) -> None:
        for note in self.told:
            note(part, line)
        self.changed()

    # -- starting -----------------------------------------------------------------------------

    async def start(self, role: str, name: str, via: str) -> Part:
        words = ("demo-part", role, "--name", name, "--via", via)
        return await self._run(name, via, *words, msgspec.json.encode(self.urls).decode())

    async def start_node(self, name: str) -> Part:
        """With the ports of the node before it, if there was one. Returns when it serves."""
        ready = self.folder / "ready.json"
        why = ""
        for _ in range(STARTS):
            ready.unlink(missing_ok=True)
            node = await self._run(name, "", *self._serve(ready))
            node.is_to_end = True  # here its end is no surprise, but a reason to try again
            if await self.is_ready(node, ready):
                node.is_to_end = False
                said = msgspec.json.decode(await asyncio.to_thread(ready.read_bytes))
                self.urls = {wire: said[wire] for wire in WIRES}
                return node
            why = await asyncio.to_thread(node.last_words)
        raise CommandFailed(f"the node does not start: {why}")

    def _serve(self, ready: Path) -> list[str]:
        words = ["serve", "--data", str(self.folder), "--ready-file", str(ready)]
        for wire in WIRES:
            at = self.urls.get(wire, "//127.0.0.1:0").rpartition("//")[2]
            words += [f"--{wire}", at]
        return [*words, "--config", str(self.folder / "omnirelay.toml")]

    async def is_ready(self, node: Part, ready: Path) -> bool:
        # A file of another process has no event to wait for.
        while node.exit_code is None and not await asyncio.to_thread(ready.exists):  # noqa: ASYNC110
            await asyncio.sleep(0.02)
        return node.exit_code is None

    async def _run(self, name: str, via: str, *words: str) -> Part:
        return await self.spawn(name, via, sys.executable, "-m", "omnirelay.cli", *words)

    async def serve(self, name: str, *flags: str) -> Part:
        """A node of several; does not wait until it is ready."""
        config = str(self.folder / "omnirelay.toml")
        words = ("serve", "--data", str(self.folder), "--config", config)
        return await self._run(name, "", *words, *flags)

    async def spawn(self, name: str, via: str, *command: str) -> Part:
        log = self.folder / f"{name}.log"
        with await asyncio.to_thread(log.open, "ab") as complaints:
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=PIPE,
                stdout=PIPE,
                stderr=complaints,
                cwd=self.folder,
                env=_clean(os.environ),
                start_new_session=True,  # Ctrl-C is for the demo, which ends them all
            )
        self._tell_guard("+", process.pid)
        part = self.parts[name] = Part(name, via, process, log)
        self._listening.append(asyncio.create_task(self._hear(part)))
        return part

    def _tell_guard(self, sign: str, pid: int) -> None:
        assert self._guard is not None
        assert self._guard.stdin is not None
        self._guard.stdin.write(f"{sign} {pid}\n".encode())


def _clean(environ: Mapping[str, str]) -> dict[str, str]:
    """Settings of the user's own nodes are not the demo's."""
    return {key: value for key, value in environ.items() if not key.startswith("OMNIRELAY_")}
