"""Where a shard's objects lie, and what their names say.

    {shard}/{first}.json                     one envelope
    _segments/{shard}/{first}-{last}.ndjson  old envelopes, many in one object
    _floors/{shard}/{rolled}-{pruned}        which sequences are no longer to be looked for above
    _epochs/{shard}/{first}-{epoch}          which envelopes under the floor began an epoch
    _snapshots/{shard}/…                     snapshots
    _versions/{shard}/{version}              the versions of this layout that it has had

A floor is written before anything under it is deleted. Whoever finds an envelope's object asks for
the floor afterwards, and what lies under it does not count: so an object that a writer of the past
puts where another was deleted is neither read nor acknowledged.

An envelope that begins an epoch keeps its object for good, under the floor too, and its name under
`_epochs` says so before the floor passes it. An owner that was replaced stands exactly there: its
place is never free again, however long it slept and whatever its clock says, so it need not ask for
the floor after each append of its own epoch.
"""

import hashlib
import re

import msgspec

VERSION = 1
_WORD_CHARS = 200
_WIDTH = 20


class Floor(msgspec.Struct, frozen=True):
    rolled: int = 0
    """Up to here envelopes are in segments, or pruned."""
    pruned: int = 0

    @property
    def height(self) -> int:
        return max(self.rolled, self.pruned)


class Span(msgspec.Struct, frozen=True, order=True):
    """One segment."""

    first: int
    last: int
    key: str


class Layout:
    def __init__(self, shard: str) -> None:
        self.word = word(shard)
        self.envelopes = f"{self.word}/"
        self.segments = f"_segments/{self.word}/"
        self.floors = f"_floors/{self.word}/"
        self.epochs = f"_epochs/{self.word}/"
        self.parts = f"_snapshots/{self.word}/parts/"
        self.refs = f"_snapshots/{self.word}/refs/"
        self.versions = f"_versions/{self.word}/"

    def envelope(self, first: int) -> str:
        return f"{self.envelopes}{first:0{_WIDTH}d}.json"

    def version(self, number: int) -> str:
        return f"{self.versions}{number:0{_WIDTH}d}"

    def segment(self, first: int, last: int) -> str:
        return f"{self.segments}{first:0{_WIDTH}d}-{last:0{_WIDTH}d}.ndjson"

    def floor(self, floor: Floor) -> str:
        return f"{self.floors}{floor.rolled:0{_WIDTH}d}-{floor.pruned:0{_WIDTH}d}"

    def beginning(self, first: int, epoch: int) -> str:
        return f"{self.epochs}{first:0{_WIDTH}d}-{epoch:0{_WIDTH}d}"

    def part(self, sequence: int, part: int) -> str:
        return f"{self.parts}{sequence:0{_WIDTH}d}/{part:06d}"

    def ref(self, sequence: int) -> str:
        return f"{self.refs}{sequence:0{_WIDTH}d}.json"


def numbers(key: str) -> list[int]:
    """Those in the last part of a key; none if it is not one of ours."""
    name = key.rpartition("/")[2].partition(".")[0]
    return [int(found) for found in name.split("-") if found.isdigit()]


def beginnings_of(keys: list[str]) -> dict[int, int]:
    """Where epochs began, and which."""
    return {pair[0]: pair[1] for key in keys if len(pair := numbers(key)) == 2}


def spans_of(keys: list[str]) -> list[Span]:
    found = [(pair, key) for key in keys if len(pair := numbers(key)) == 2]
    return sorted(Span(pair[0], pair[1], key) for pair, key in found)


def floor_of(keys: list[str]) -> Floor:
    found = [pair for key in keys if len(pair := numbers(key)) == 2]
    return Floor(
        max((pair[0] for pair in found), default=0), max((pair[1] for pair in found), default=0)
    )


def word(name: str) -> str:
    """A name as one part of a key, whatever it holds. It never begins as our own folders do."""
    found = re.sub(r"[^A-Za-z0-9_.-]|^[_.]", _escaped, name)
    if 0 < len(found) <= _WORD_CHARS:
        return found
    return f"%-{hashlib.blake2b(name.encode(), digest_size=16).hexdigest()}"


def _escaped(found: re.Match[str]) -> str:
    return "".join(f"%{byte:02X}" for byte in found.group().encode())
