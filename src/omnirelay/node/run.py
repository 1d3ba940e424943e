"""From settings to a process that serves until it is told to stop."""

import asyncio
import gc
import logging
import os
import signal
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import msgspec

from omnirelay.model.errors import InvalidOption
from omnirelay.node.node import Node
from omnirelay.node.settings import NodeSettings

GARBAGE = (60_000, 20, 50)
"""How many new containers, and collections of the younger kind, before the next one. Items, leases
and records cannot form cycles and are not looked at; Python's own 700 cost a tenth of all CPU, and
10,000, with many more items than that under way, a tenth of what was left."""

LOOK_S = 0.02
"""How often a node is asked whether it is ready, until it is."""


def serve(settings: NodeSettings, *, ready: Callable[[Node], None] | None = None) -> int:
    """Blocks until SIGTERM or SIGINT, then stops cleanly and returns 0. Raises OmniRelayError if
    the node cannot start. `ready` is called once, when it serves."""
    _log(settings.log_level)
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(_serve(settings, ready))
    return 0


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop where there is one: a fifth less CPU a call (docs/adr/0008)."""
    try:
        import uvloop
    except ModuleNotFoundError:
        return None
    return uvloop.new_event_loop


async def _serve(settings: NodeSettings, ready: Callable[[Node], None] | None) -> None:
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    file = None if settings.ready_file is None else Path(settings.ready_file)
    _remove(file)  # one that a killed process left says nothing about this one
    try:
        async with Node(settings) as node:
            gc.freeze()  # modules and what was recovered stay for good
            gc.set_threshold(*GARBAGE)
            if await _until_settled(node, stopping):
                if file is not None:
                    write_ready_file(file, node)
                if ready is not None:
                    ready(node)
            await stopping.wait()
            _remove(file)
    finally:
        _remove(file)


async def _until_settled(node: Node, stopping: asyncio.Event) -> bool:
    """False if it was told to stop before. A node that stands by is settled though `/readyz` is
    503: whoever promotes it needs its address."""
    while node.unsettled is not None:
        with suppress(TimeoutError):
            async with asyncio.timeout(LOOK_S):
                await stopping.wait()
                return False
    return True


def _remove(file: Path | None) -> None:
    if file is None:
        return
    try:
        file.unlink(missing_ok=True)
    except OSError as error:
        raise InvalidOption(f"ready_file is {file}: {error.strerror}") from error


def write_ready_file(path: Path, node: Node) -> None:
    """Whole or not at all, so that whoever waits for it never reads half."""
    said = {**node.urls, "pid": os.getpid(), "nodeId": node.node_id}
    try:
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=path.name, delete=False) as file:
            file.write(msgspec.json.encode(said))
        Path(file.name).replace(path)
    except OSError as error:
        raise InvalidOption(f"ready_file is {path}: {error.strerror}") from error


def _log(level: str) -> None:
    numbers = logging.getLevelNamesMapping()
    if level.upper() not in numbers:
        raise InvalidOption(f"log_level is {level!r}, must be one of {', '.join(numbers).lower()}")
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("omnirelay").setLevel(numbers[level.upper()])
