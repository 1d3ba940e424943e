"""A clock that stands still until it is moved, for code that takes `Clock` by constructor."""


class HandClock:
    """Both hands move with `now_ms`; the wall is `wall_ahead_ms` in front of it."""

    def __init__(self, now_ms: int = 1_000_000, *, wall_ahead_ms: int = 0) -> None:
        self.now_ms = now_ms
        self.wall_ahead_ms = wall_ahead_ms

    def monotonic_ms(self) -> int:
        return self.now_ms

    def wall_ms(self) -> int:
        return self.now_ms + self.wall_ahead_ms

    def advance(self, ms: int) -> None:
        self.now_ms += ms
