"""A process that stops itself between the decision to append and the request:
`sleeper.py URL SHARD`. Prints `stops` before, and what became of the append afterwards."""

import asyncio
import os
import signal
import sys

from omnirelay.model.errors import OmniRelayError
from omnirelay.model.ports import set_failpoint
from omnirelay.stores.registry import open_address
from omnirelay.testing.envelopes import Scribe


def stop(name: str) -> None:
    if name == "objects.before_put":
        print("stops", flush=True)
        os.kill(os.getpid(), signal.SIGSTOP)


async def main(url: str, shard: str) -> None:
    journal, scribe = open_address(url, shard).journal, Scribe(shard)
    await journal.open()
    for sealed in (scribe.seal(2), scribe.seal(3)):
        await journal.append(sealed, expected=sealed.first - 1)
    set_failpoint(stop)
    sealed = scribe.seal()
    try:
        await journal.append(sealed, expected=sealed.first - 1)
        print("appended")
    except OmniRelayError as error:
        print(type(error).__name__)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2]))
