"""Bugs"""

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def plant_bug(name: str | None) -> Iterator[None]:
    yield
