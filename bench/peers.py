"""Embedded queues others use, on the same job: enqueue, take, acknowledge, 200-byte bodies, every
commit synced (SQLite WAL, synchronous=FULL). Each at the best its API offers."""

import time
from pathlib import Path
from typing import Any

import litequeue
import persistqueue
from huey.storage import SqliteStorage

BODY = "x" * 200


def persist_queue(folder: Path, items: int) -> float:
    queue = persistqueue.SQLiteAckQueue(str(folder / "persist"), auto_commit=True)
    connections: list[Any] = [queue._getter, queue._putter]  # already WAL; untyped in the library
    for connection in connections:
        connection.execute("PRAGMA synchronous=FULL")
    start = time.perf_counter()
    for _ in range(items):
        queue.put(BODY)
        queue.ack(queue.get())
    elapsed = time.perf_counter() - start
    queue.close()
    return items / elapsed


def lite_queue(folder: Path, items: int) -> float:
    queue = litequeue.LiteQueue(str(folder / "lite.db"))
    queue.conn.execute("PRAGMA synchronous=FULL")
    start = time.perf_counter()
    for _ in range(items):
        queue.put(BODY)
        queue.done(queue.pop().message_id)
    elapsed = time.perf_counter() - start
    queue.conn.close()
    return items / elapsed


def huey_sqlite(folder: Path, items: int) -> float:
    """Huey deletes on dequeue: one commit less than ours, and no second try after a crash."""
    storage = SqliteStorage(filename=str(folder / "huey.db"), fsync=True)
    data = BODY.encode()
    start = time.perf_counter()
    for _ in range(items):
        storage.enqueue(data)
        storage.dequeue()
    elapsed = time.perf_counter() - start
    storage.close()
    return items / elapsed


PEERS = {"persist-queue": persist_queue, "litequeue": lite_queue, "Huey": huey_sqlite}
