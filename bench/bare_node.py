"""The least that a node could be: our frames, our structs, one synced commit a turn, no decisions.

It believes everybody, looks nothing up, lets no lease end and cannot start again; what it keeps is
the same records under the same JSON, without a checksum. What it does not use is
what CPython, msgspec, uvloop and SQLite leave for all the rest.

`python -m bench.bare_node SOCKET FILE`.
"""

import asyncio
import sys
from collections import deque
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import cast

import msgspec
import uvloop

from bench.bare_hub import bare_table
from omnirelay.lease.answers import LeaseResponse
from omnirelay.lease.records import Completed, Enqueued, Granted, Record
from omnirelay.mesh import wire
from omnirelay.model.items import Payload, Token
from omnirelay.rpc.codec import MSGPACK
from omnirelay.transports.stream_frames import (
    FROM_CALLER,
    VERSION,
    CallFrame,
    Hello,
    ReplyFrame,
    Splitter,
    Welcome,
    pack,
)

LEASE_MS = 30_000
LEASE_ID = "0d7b5f3c-5e0a-4d0c-9e0e-6c1f5a9d7b21"
TAKEN = wire.TokenResult(True)
REQUESTS: dict[str, type] = {
    "enqueueBatch": wire.EnqueueBatchRequest,
    "leaseBatch": wire.LeaseBatchRequest,
    "completeBatch": wire.TokenBatchRequest,
    "completeAndLease": wire.CompleteAndLeaseRequest,
}


class BareNode:
    def __init__(self, file: str) -> None:
        self._db = bare_table(file)
        self._loop = asyncio.get_running_loop()
        self._encode = msgspec.json.Encoder().encode
        self._ids = 0
        self._pending: deque[tuple[int, Payload]] = deque()
        self._waiting: deque[tuple[Line, int, int]] = deque()
        self._records: list[Record] = []
        self._answers: list[tuple[Line, int, object]] = []
        self._is_turning = False

    def take(self, line: "Line", frame: CallFrame) -> None:
        request: object = MSGPACK.decode(frame.body, REQUESTS[frame.procedure])
        answer: object = None
        if isinstance(request, wire.EnqueueBatchRequest):
            answer = self._enqueued(request.items)
        elif isinstance(request, wire.TokenBatchRequest):
            answer = wire.TokenBatchResponse(self._completed(request.ownership_tokens))
        elif isinstance(request, wire.CompleteAndLeaseRequest):
            results = self._completed(request.ownership_tokens)
            answer = wire.CompleteAndLeaseResponse(results, self._granted(request.max_items))
        else:
            assert isinstance(request, wire.LeaseBatchRequest)
            self._waiting.append((line, frame.id, request.max_items))
        if answer is not None:
            self._answers.append((line, frame.id, answer))
        if not self._is_turning:
            self._is_turning = True
            self._loop.call_soon(self._turn)

    def _enqueued(self, items: Sequence[wire.EnqueueRequest]) -> wire.EnqueueBatchResponse:
        results = []
        for item in items:
            self._ids += 1
            assert item.payload is not None
            self._pending.append((self._ids, item.payload))
            self._records.append(Enqueued(self._ids, item.payload))
            results.append(wire.EnqueueResult(self._ids, False))
        return wire.EnqueueBatchResponse(wire.Depths(len(self._pending), 0), tuple(results))

    def _granted(self, most: int) -> tuple[LeaseResponse, ...]:
        now = datetime.now(UTC)
        leases = []
        for _ in range(min(most, len(self._pending))):
            number, payload = self._pending.popleft()
            self._records.append(Granted(number, 1, LEASE_ID, number, 0, LEASE_MS))
            token = Token(number, 1, LEASE_ID, number)
            leases.append(LeaseResponse(payload, number, 1, now, token, number, now, LEASE_MS, 10))
        return tuple(leases)

    def _completed(self, tokens: Iterable[Token]) -> tuple[wire.TokenResult, ...]:
        ended = [Completed(one.sequence_id, 1, one.lease_id, one.fence or 0) for one in tokens]
        self._records += ended
        return (TAKEN,) * len(ended)

    def _turn(self) -> None:
        """Everything that came in this turn of the loop is one commit."""
        self._is_turning = False
        while self._waiting and self._pending:
            line, call, most = self._waiting.popleft()
            self._answers.append((line, call, wire.LeaseBatchResponse(self._granted(most))))
        if self._records:
            body = self._encode(self._records)
            self._db.execute("INSERT INTO blobs (body) VALUES (CAST(? AS TEXT))", (body,))
            self._records.clear()
        for line, call, answer in self._answers:
            line.say(ReplyFrame(call, MSGPACK.encode(answer)))
        self._answers.clear()


class Line(asyncio.Protocol):
    def __init__(self, node: BareNode) -> None:
        self._node = node
        self._splitter = Splitter(FROM_CALLER)
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        for frame in self._splitter.feed(data):
            if isinstance(frame, CallFrame):
                self._node.take(self, frame)
            elif isinstance(frame, Hello):
                self.say(Welcome(VERSION))

    def say(self, frame: ReplyFrame | Welcome) -> None:
        self._transport.write(pack(frame))


async def main(socket: str, file: str) -> None:
    node = BareNode(file)
    loop = asyncio.get_running_loop()
    server = await loop.create_unix_server(lambda: Line(node), socket)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(main(*sys.argv[1:]))
