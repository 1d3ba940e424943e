"""The least that a hub could be: a gRPC server that puts each message into SQLite, synced, and says
so. `python bare_hub.py port file`."""

import asyncio
import sys
from typing import Any

import apsw
import grpc
import grpc.aio

SERVICE = "bare.Hub"


def bare_table(file: str) -> apsw.Connection:
    db = apsw.Connection(file)
    db.execute("PRAGMA journal_mode=WAL")
    db.execute("PRAGMA synchronous=FULL")
    db.execute("CREATE TABLE blobs (number INTEGER PRIMARY KEY, body TEXT)")
    return db


async def main(port: str, file: str) -> None:
    db = bare_table(file)

    async def put(body: bytes, _context: object) -> bytes:
        db.execute("INSERT INTO blobs (body) VALUES (?)", (body.decode(),))
        return b""

    server = grpc.aio.server()
    # Any: the stubs leave the messages open.
    handlers: Any = {"Put": grpc.unary_unary_rpc_method_handler(put)}
    server.add_registered_method_handlers(SERVICE, handlers)
    server.add_insecure_port(f"127.0.0.1:{port}")
    await server.start()
    await server.wait_for_termination()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
