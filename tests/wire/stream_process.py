"""A stream listener in a process of its own, so that what it holds can be measured."""

import asyncio
import signal
import subprocess
import sys
from pathlib import Path

from tests.wire.stream_raw import served


class Process:
    """`python -m tests.wire.stream_process` until the block is left."""

    def __init__(self) -> None:
        self.url = ""
        self._process: subprocess.Popen[str]

    def __enter__(self) -> "Process":
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.wire.stream_process"],
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[2],
        )
        assert self._process.stdout is not None
        self.url = self._process.stdout.readline().strip()
        assert self.url.startswith("stream://"), self.url
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        assert self._process.wait(8) == 0, "it ended in another way than by being told to"
        assert self._process.stdout is not None
        self._process.stdout.close()

    def resident_kib(self) -> int:
        said = subprocess.run(
            ["ps", "-o", "rss=", "-p", str(self._process.pid)],
            capture_output=True,
            text=True,
            check=True,
        )
        return int(said.stdout)


async def main() -> None:
    told = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, told.set)
    async with served(hello_s=0.5, silence_s=4.0) as node:
        print(node.url, flush=True)
        await told.wait()


if __name__ == "__main__":
    asyncio.run(main())
