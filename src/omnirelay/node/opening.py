"""What is said at a door that has opened before its queue."""

from collections.abc import Callable, Mapping

from omnirelay.mesh.calls import AnyCall
from omnirelay.mesh.refusal import refuse
from omnirelay.model.errors import Recovering
from omnirelay.transports.http_pages import Page, PageReply, PageRequest

ALWAYS = ("/healthz", "/readyz")
"""Whoever asks these wants to know just that."""


def _starting() -> Recovering:
    return Recovering("the node is starting and reads its journals; try again")


def not_open_yet(call: AnyCall) -> None:
    refuse((call,), _starting())


def pages_once_open(pages: Mapping[str, Page], is_opening: Callable[[], bool]) -> dict[str, Page]:
    """Most of them ask a store, and none is open."""

    def once_open(page: Page) -> Page:
        async def show(request: PageRequest) -> PageReply:
            if is_opening():
                raise _starting()
            return await page(request)

        return show

    return {path: page if path in ALWAYS else once_open(page) for path, page in pages.items()}
