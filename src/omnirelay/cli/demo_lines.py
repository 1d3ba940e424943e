"""What the demo's processes say to the one that started them, a line of JSON each, and the few
words they are told."""

import msgspec


class Line(msgspec.Struct, omit_defaults=True):
    """Said only after the node has said yes to it."""

    said: str
    """ready, enqueued, holding, hanging, completed, refused, or answered if it was not refused."""
    item: int = 0
    fence: int = 0
    """Of `refused`: the one the node named as the current one."""
    wire: str = ""
    status: str = ""


def say(said: str, item: int = 0, fence: int = 0, *, wire: str = "", status: str = "") -> None:
    print(msgspec.json.encode(Line(said, item, fence, wire, status)).decode(), flush=True)


def heard(line: bytes) -> Line:
    return msgspec.json.decode(line, type=Line)


GO = "go"
"""To a producer: one more item."""
HANG = "hang"
"""To a worker: be in the middle of your next item until somebody ends it."""
TRY = "try"
"""To a worker that hung: finish what you still believe to hold, over every wire."""
KEEP = "keep"
"""To a worker, with an item: if you get this one, do not finish it before you are told."""
FINISH = "finish"
"""To a worker: finish it now."""
END = "end"
