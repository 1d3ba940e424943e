"""The idea of the project. A lease alone keeps nobody from writing too late: a process may be
paused after it looked at its lease and before it writes. So every grant carries a fence that only
grows, and what is written to refuses a smaller fence than it has seen.

    python fenced_write.py
"""

import asyncio
import sqlite3

import omnirelay

TABLE = "CREATE TABLE balances (account TEXT PRIMARY KEY, value TEXT, fence INTEGER NOT NULL)"
# The check and the write are one statement. A look first and a write afterwards would leave room
# for the very pause that this is about.
WRITE = """
INSERT INTO balances (account, value, fence) VALUES (:account, :value, :fence)
ON CONFLICT (account) DO UPDATE SET value = :value, fence = :fence WHERE :fence >= fence
"""


def write(books: sqlite3.Connection, lease: omnirelay.Lease, value: str) -> bool:
    """False if somebody with a newer lease has been here."""
    row = {"account": lease.resource_id, "value": value, "fence": lease.fence}
    with books:
        return books.execute(WRITE, row).rowcount == 1


async def main(books: sqlite3.Connection) -> None:
    books.execute(TABLE)
    async with omnirelay.connect("memory:") as relay:
        await relay.enqueue("account", "alice", body=b"close the month")

        # The first worker gets a short lease and stalls, as under a long garbage collection: no
        # heartbeat keeps it (renew=False).
        slow = await relay.lease(wait=5, duration=0.3, renew=False, peer_id="slow")
        print(f"slow has fence {slow.fence}")

        # When that lease has expired, the second gets the same item under a newer fence.
        async with relay.lease(wait=5, peer_id="quick") as quick:
            print(f"quick has fence {quick.fence}, writes: {write(books, quick, 'by quick')}")

            # The first wakes up and believes that nothing has happened.
            print(f"slow writes: {write(books, slow, 'by slow')}")
            try:
                await slow.complete()
            except omnirelay.StaleToken as refusal:
                print(f"slow completes: refused, the fence is {refusal.current_fence} now")

    print("the books say:", *books.execute("SELECT value FROM balances").fetchone())


if __name__ == "__main__":
    asyncio.run(main(sqlite3.connect(":memory:")))
