"""The demo's second stage: the same file, three workers, of which one dies and one stalls."""

import asyncio

from omnirelay.cli.demo_board import Board
from omnirelay.cli.demo_proof import Fates, Grant
from omnirelay.cli.demo_queue import LATE_WORKERS, open_queue, work_as, work_on
from omnirelay.cli.demo_screen import Screen
from omnirelay.model.errors import StaleToken
from omnirelay.sdk.client import Relay
from omnirelay.sdk.lease import Lease


async def go_on(path: str, items: int, board: Board, screen: Screen) -> Fates:
    """Until all items are done; says who held what and was refused."""
    try:
        async with open_queue(path) as relay:
            return await _play(_Stage(relay, board, screen), relay, items)
    except BaseExceptionGroup as group:  # of one task that failed and those cancelled for it
        raise group.exceptions[0] from group


async def _play(stage: "_Stage", relay: Relay, items: int) -> Fates:
    honest_one, dying_one, stalling_one = LATE_WORKERS
    async with asyncio.TaskGroup() as tasks:
        watching = tasks.create_task(stage.watch(until=items))
        # These two take their fateful leases before the honest worker can take all there is.
        dead, stalled = await stage.die(dying_one), await stage.stall(stalling_one)
        honest = work_as(honest_one, relay, stage.work)
        recovered = work_as(stalling_one, relay, stage.work)
        tasks.create_task(honest.run())
        refusal = await stage.wake_up_late(stalled)
        tasks.create_task(recovered.run())
        await watching
        honest.stop()
        recovered.stop()
    return Fates(dead=_grant(dead), stalled=_grant(stalled), refused_with=refusal)


class _Stage:
    def __init__(self, relay: Relay, board: Board, screen: Screen) -> None:
        self._relay = relay
        self._board = board
        self._screen = screen
        self._stalled: Lease | None = None
        self._granted_again = asyncio.Event()
        self._refused = asyncio.Event()

    async def watch(self, until: int) -> None:
        """Show every event as it is committed, until so many items are done."""
        async for event in self._relay.events(self._board.sequence):
            self._board.see(event)
            if event.event_type == "Expired":
                self._screen.note(
                    f"the lease of {event.peer_id} on item {event.sequence_id} (fence "
                    f"{event.fence}) expired: the item is free again"
                )
            self._screen.moved()
            if self._board.completed >= until:
                return

    async def die(self, peer: str) -> Lease:
        """Takes a lease and is never heard of again."""
        lease = await self._relay.lease(wait=10, renew=False, peer_id=peer)
        self._screen.note(f"{peer} took item {lease.sequence_id} (fence {lease.fence}) and died")
        return lease

    async def stall(self, peer: str) -> Lease:
        """Takes a lease and does nothing, not even a heartbeat, as a paused process would."""
        lease = await self._relay.lease(wait=10, renew=False, peer_id=peer)
        self._stalled = lease
        self._screen.note(f"{peer} took item {lease.sequence_id} (fence {lease.fence}) and stalls")
        return lease

    async def wake_up_late(self, lease: Lease) -> int | None:
        """Once another holds the item, the stalled worker comes back and wants to complete it.
        Returns the fence it was refused with; None if, against all promises, it was let in."""
        await self._granted_again.wait()
        try:
            await lease.complete()
            return None
        except StaleToken as refusal:
            self._screen.note(
                f"{lease.owner_peer_id} woke up and wanted to complete item {lease.sequence_id} "
                f"with fence {lease.fence}: refused, the fence is {refusal.current_fence} now"
            )
            return refusal.current_fence
        finally:
            self._refused.set()

    async def work(self, lease: Lease) -> None:
        if self._stalled is not None and lease.sequence_id == self._stalled.sequence_id:
            # Held until the stalled worker has had its try, so that the two really meet.
            self._granted_again.set()
            await self._refused.wait()
        await work_on(lease)


def _grant(lease: Lease) -> Grant:
    return Grant(lease.sequence_id, lease.fence)
