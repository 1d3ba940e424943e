"""The same API for threads: a pool drains a queue without a line of asyncio.

python sync_client.py [stream://127.0.0.1:7402]        # a node, or nothing: a queue in memory
"""

import sys
from concurrent.futures import ThreadPoolExecutor

import omnirelay

THREADS = 4
ITEMS = 40


def work(relay: omnirelay.SyncRelay, name: str) -> int:
    done = 0
    while True:
        try:
            # One relay serves all threads: calls made at the same time share one round trip and
            # one sync of the disk, which is why four threads are not four times the load.
            with relay.lease(wait=0.5, types=["thumbnail"], peer_id=name) as lease:
                if lease.lost.is_set():  # a thread cannot be cancelled: long work asks now and then
                    continue
                done += 1
        except omnirelay.NothingToLease:
            return done


def main(url: str) -> None:
    with omnirelay.connect_sync(url) as relay, ThreadPoolExecutor(THREADS) as pool:
        # One commit for all of them; each has an outcome of its own.
        outcomes = relay.enqueue_many(
            omnirelay.Payload("thumbnail", f"picture-{number}") for number in range(ITEMS)
        )
        print(f"{sum(isinstance(one, omnirelay.Accepted) for one in outcomes)} enqueued")
        names = [f"thread-{number}" for number in range(THREADS)]
        counts = list(pool.map(lambda name: work(relay, name), names))
        print(f"{sum(counts)} done by {THREADS} threads")
        stats = relay.stats()
        print(f"{stats.active_lease_count} still held")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "memory:")
