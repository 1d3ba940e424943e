"""Which tests go to one worker together when several run them."""

from xdist.scheduler import LoadScopeScheduling

TOGETHER = ("tests/spark/",)
"""Folders whose tests share what takes longest to start."""


class ByFixtures(LoadScopeScheduling):  # type: ignore[misc]
    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return next((folder for folder in TOGETHER if file.startswith(folder)), file)
