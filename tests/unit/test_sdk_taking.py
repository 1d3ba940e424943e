"""Lease calls that are made together travel together, and each gets what it asked for."""

import asyncio

import pytest

from omnirelay.lease.answers import LeaseResponse
from omnirelay.model import limits
from omnirelay.model.errors import Unavailable
from omnirelay.model.items import Payload, Token, to_time
from omnirelay.model.ports import SystemClock
from omnirelay.sdk.link import Wish
from omnirelay.sdk.taking import Taker

Leases = tuple[LeaseResponse, ...]


class Node:
    """Notes what it is asked for; its answers come when a test gives them."""

    def __init__(self) -> None:
        self.asked: list[int] = []
        self.answers: list[asyncio.Future[Leases]] = []
        self.given_back: list[int] = []
        loop = asyncio.get_running_loop()
        self.taker = Taker(loop, SystemClock(), self.ask, self.give_back)

    async def ask(self, wish: Wish) -> Leases:
        self.asked.append(wish.max_items)
        answer: asyncio.Future[Leases] = asyncio.get_running_loop().create_future()
        self.answers.append(answer)
        return await answer

    def give_back(self, leases: Leases) -> None:
        self.given_back += [one.sequence_id for one in leases]

    async def wishes(self, *counts: int) -> "list[asyncio.Task[Leases]]":
        """Asked for in one turn of the loop, by callers who are not alone."""
        self.taker._alone.gathered(2)
        wishes = [Wish(max_items=count, wait_ms=1000) for count in counts]
        asking = [asyncio.create_task(self.taker.take(wish)) for wish in wishes]
        await breathe()
        return asking


async def breathe() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def leases(first: int, last: int) -> Leases:
    return tuple(
        LeaseResponse(
            Payload("table", "a"),
            number,
            1,
            to_time(0),
            Token(number, 1, "00000000-0000-0000-0000-000000000001", number),
            number,
            to_time(0),
            100,
            33,
        )
        for number in range(first, last + 1)
    )


def numbers(found: Leases) -> list[int]:
    return [one.sequence_id for one in found]


async def test_wishes_of_one_turn_are_one_call_and_dealt_out_in_their_order() -> None:
    node = Node()
    asking = await node.wishes(2, 1, 3)
    assert node.asked == [6]
    node.answers[0].set_result(leases(1, 6))
    assert [numbers(await one) for one in asking] == [[1, 2], [3], [4, 5, 6]]


async def test_who_got_nothing_asks_again_and_who_got_some_does_not() -> None:
    node = Node()
    asking = await node.wishes(2, 2, 2)
    node.answers[0].set_result(leases(1, 3))
    await breathe()
    assert [numbers(await one) for one in asking[:2]] == [[1, 2], [3]]
    assert node.asked == [6, 2]
    node.answers[1].set_result(leases(4, 4))
    assert numbers(await asking[2]) == [4]


async def test_what_came_for_a_caller_that_left_goes_to_the_next_and_the_rest_back() -> None:
    node = Node()
    asking = await node.wishes(2, 2)
    asking[0].cancel()
    await breathe()
    node.answers[0].set_result(leases(1, 4))
    assert numbers(await asking[1]) == [1, 2]
    assert node.given_back == [3, 4]


async def test_no_call_asks_for_more_than_may_travel_together() -> None:
    node = Node()
    asking = await node.wishes(limits.TOGETHER_MAX - 1, 1, 1, limits.BATCH_MAX, 1)
    assert node.asked == [limits.TOGETHER_MAX, 1, limits.BATCH_MAX, 1]
    for answer in node.answers:
        answer.set_exception(Unavailable("gone"))
    for one in asking:
        with pytest.raises(Unavailable):
            await one


async def test_a_wish_for_nothing_spoils_no_other() -> None:
    node = Node()
    asking = await node.wishes(0, 2)
    assert sorted(node.asked) == [0, 2]
    node.answers[node.asked.index(0)].set_exception(Unavailable("refused"))
    node.answers[node.asked.index(2)].set_result(leases(1, 2))
    with pytest.raises(Unavailable):
        await asking[0]
    assert numbers(await asking[1]) == [1, 2]
