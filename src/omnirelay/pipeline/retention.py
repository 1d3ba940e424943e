"""Which files of events may go together: never one whose shard keeps an older event, since what
stays would have a hole."""

from collections.abc import Iterable, Mapping

Ends = Mapping[str, Mapping[str, tuple[int, int]]]
"""File to shard to the first and last sequence that it holds of it."""


def without_holes(old: Iterable[str], ends: Ends) -> list[str]:
    """Those of the `old` files before which nothing stays. One of several shards is as old as its
    newest event, so that of one shard it may keep what is older than all of another file."""
    going = set(old)
    while held := _held(going, ends):
        going -= held
    return sorted(going)


def _held(going: set[str], ends: Ends) -> set[str]:
    firsts: dict[str, int] = {}
    for shards in (ends[path] for path in ends.keys() - going):
        for shard, (first, _) in shards.items():
            firsts[shard] = min(first, firsts.get(shard, first))
    return {path for path in going if _reaches(ends[path], firsts)}


def _reaches(shards: Mapping[str, tuple[int, int]], firsts: Mapping[str, int]) -> bool:
    return any(last >= firsts.get(shard, last + 1) for shard, (_, last) in shards.items())


def lasts(paths: Iterable[str], ends: Ends) -> dict[str, int]:
    """Shard to the last sequence in these files."""
    found: dict[str, int] = {}
    for path in paths:
        for shard, (_, last) in ends[path].items():
            found[shard] = max(last, found.get(shard, last))
    return found
