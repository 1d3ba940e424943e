"""A queue inside your own program: no server, one file, everything durable when a call returns.

python embedded_queue.py
"""

import asyncio
import tempfile
from pathlib import Path

import omnirelay


async def main(file: Path) -> None:
    # Whoever opens the file owns it; a second process would be refused, not mixed up with us.
    async with omnirelay.connect(f"sqlite:///{file}", peer_id="nightly") as relay:
        first = await relay.enqueue("table", "sales.orders", body=b"compact", request_id="r-1")
        # The same request again, as after a timeout: it gets the first item's id, nothing doubles.
        again = await relay.enqueue("table", "sales.orders", body=b"compact", request_id="r-1")
        print(f"item {first.sequence_id}, asked twice: duplicate={again.duplicate}")

        try:
            async with relay.lease(wait=5) as lease:
                print(f"attempt {lease.attempt} has fence {lease.fence}")
                raise RuntimeError("the catalog is away")
        except RuntimeError as error:
            # Leaving the block by an exception has failed the lease: the item is tried again, after
            # a pause that grows from attempt to attempt.
            print(f"failed: {error}")

    # Closed and opened again, as after a crash or a deployment: the journal knows it all.
    async with omnirelay.connect(f"sqlite:///{file}", peer_id="nightly") as relay:
        async with relay.lease(wait=5) as lease:
            print(f"attempt {lease.attempt} has fence {lease.fence}, after {lease.last_error}")
        # Every change is an event, in order; who asked for it stands in it.
        async for event in relay.events(follow=False):
            print(f"{event.sequence_number:>3} {event.event_type:<13} {event.peer_id or ''}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(main(Path(folder) / "leases.db"))
