"""What Spark says of an error of ours: a worker's comes as text inside a trace."""

import re
from collections.abc import Iterator

from omnirelay.model.errors import InvalidArgument, InvalidOption, OmniRelayError, Unavailable

_OURS = re.compile(r"^omnirelay\.model\.errors\.(\w+): (.+)$", re.MULTILINE)


def raised_in(said: str) -> OmniRelayError | None:
    """The last error of ours that the text tells of, of its own kind if whoever asks may act by
    that; None if it tells of none."""
    ours = _OURS.findall(said)
    if not ours:
        return None
    kind, message = ours[-1]
    return _KINDS.get(kind, OmniRelayError)(message)


def away_of(error: BaseException) -> Unavailable | None:
    """What could not be reached, if that is what the error means."""
    meant = error if isinstance(error, OmniRelayError) else raised_in(str(error))
    return meant if isinstance(meant, Unavailable) else None


def _all_of(kind: type[OmniRelayError]) -> Iterator[type[OmniRelayError]]:
    yield kind
    for below in kind.__subclasses__():
        yield from _all_of(below)


_TOLD: list[type[OmniRelayError]] = [InvalidArgument, InvalidOption, *_all_of(Unavailable)]
_KINDS = {kind.__name__: kind for kind in _TOLD}
