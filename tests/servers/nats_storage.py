"""A stream of its own on running NATS servers, and its messages behind the store's back."""

from typing import TYPE_CHECKING, Any, TypeVar

from omnirelay.journal.backend import JournalTarget
from omnirelay.sdk.threads import LoopThread
from omnirelay.stores.nats import NatsJournal
from omnirelay.stores.nats_address import parse
from omnirelay.stores.nats_link import NatsLink, StoredMessage
from omnirelay.testing.store_suite import SHARD, Medium

if TYPE_CHECKING:
    from collections.abc import Coroutine

T = TypeVar("T")


class NatsStorage(Medium):
    notices_lost_tail = False
    named_no_version = True

    def __init__(self, url: str, aside: LoopThread) -> None:
        self.address = parse(url)
        self._aside = aside
        self._subject = self.address.journal_subject(SHARD)

    def handle(self, shard: str = SHARD) -> JournalTarget:
        return NatsJournal(self.address, shard)

    def bodies(self) -> list[bytes]:
        return [message.data for message in self._aside.call(self._messages())]

    def put_body(self, at: int, body: bytes) -> None:
        self._aside.call(self._replace(at, body))

    def drop(self, at: int) -> None:
        self._aside.call(self._delete(at))

    async def _linked(self, work: "Coroutine[Any, Any, T]", link: NatsLink) -> T:
        await link.open()
        try:
            return await work
        finally:
            await link.close()

    async def _messages(self) -> list[StoredMessage]:
        link = NatsLink(self.address)
        return await self._linked(_all(link, self._subject), link)

    async def _delete(self, at: int) -> None:
        link = NatsLink(self.address)

        async def work() -> None:
            found = await _all(link, self._subject)
            await link.manager.delete_msg(self.address.stream, found[at].sequence)

        await self._linked(work(), link)

    async def _replace(self, at: int, body: bytes) -> None:
        """No message can be changed, so all are written again, one of them otherwise."""
        link = NatsLink(self.address)

        async def work() -> None:
            found = await _all(link, self._subject)
            await link.manager.purge_stream(self.address.stream, subject=self._subject)
            for number, message in enumerate(found):
                own = {k: v for k, v in message.headers.items() if k.startswith("Omni-")}
                data = body if number == at else message.data
                await link.publish(self._subject, data, headers=own, timeout_s=5.0)

        await self._linked(work(), link)

    def version(self) -> int | None:
        found = self._aside.call(self._metadata({})).get("omnirelay_layout")
        return None if found is None else int(found)

    def put_version(self, version: int | None) -> None:
        self._aside.call(
            self._metadata({"omnirelay_layout": None if version is None else str(version)})
        )

    async def _metadata(self, change: dict[str, str | None]) -> dict[str, str]:
        """Of the journal's stream, after the change."""
        link = NatsLink(self.address)

        async def work() -> dict[str, str]:
            config = (await link.manager.stream_info(self.address.stream)).config
            wanted = {**(config.metadata or {}), **change}
            config.metadata = {name: text for name, text in wanted.items() if text is not None}
            if change:
                await link.manager.update_stream(config)
            return config.metadata

        return await self._linked(work(), link)


async def _all(link: NatsLink, subject: str) -> list[StoredMessage]:
    """As the leader has them."""
    found: list[StoredMessage] = []
    place = 1
    while one := await link.leader_get(link.address.stream, seq=place, next_by_subj=subject):
        found.append(one)
        place = one.sequence + 1
    return found
