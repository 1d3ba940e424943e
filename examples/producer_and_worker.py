"""A producer, and a worker that stops as a service should: on SIGTERM it takes no more work,
finishes what it has in hand and leaves with 0.

    omnirelay dev                                # in another terminal
    python producer_and_worker.py [stream://127.0.0.1:7402]
"""

import asyncio
import sys

import omnirelay

URL = "stream://127.0.0.1:7402"  # http://127.0.0.1:7400 and grpc://127.0.0.1:7401 do as well
TABLES = ("orders", "returns", "clicks")


async def produce(relay: omnirelay.Relay) -> None:
    # The request id says which work this is. Run the program twice and nothing is done twice; let
    # the node restart meanwhile, and the SDK asks again until it knows.
    for table in TABLES:
        accepted = await relay.enqueue("compaction", table, request_id=f"compact-{table}")
        known = "known already" if accepted.duplicate else "new"
        print(f"{table}: item {accepted.sequence_id}, {known}", flush=True)


async def compact(lease: omnirelay.Lease) -> None:
    # Heartbeats go out by themselves, from another thread. Should the lease be lost all the same,
    # this handler is cancelled; what it wrote under a smaller fence must not count.
    print(f"{lease.resource_id}: attempt {lease.attempt}, fence {lease.fence}", flush=True)
    if lease.attempt == 1 and lease.resource_id == "returns":
        raise ConnectionError("the object store is away")  # tried again by whoever is next


async def main(url: str) -> None:
    async with omnirelay.connect(url, peer_id="compactor-1") as relay:
        worker = omnirelay.Worker(relay, concurrency=4)
        worker.handles("compaction")(compact)
        await produce(relay)
        await worker.run(handle_signals=True)
        print(f"stopped: {worker.completed} completed, {worker.failed} failed, {worker.lost} lost")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else URL))
