"""Whether a turn should wait a moment for company.

Two callers that fall out of step stay so: the call of each arrives while that of the other is being
made durable, and every commit serves one of them. Held back once, they are answered together, come
back together, and need half the commits. Whether that pays depends on callers and disk, so it is
tried now and then and judged by how many commands a second came through before and after.
"""

WINDOW = 32
"""Turns that are counted before and after a trial."""
SOONEST, LATEST = 64, 1024
"""Turns from one trial to the next: after one that paid, and after many that did not."""
PAYS = 1.1


class Gathering:
    def __init__(self) -> None:
        self._turn = 0
        self._pause = SOONEST
        self._asked = 0
        self._since_s = 0.0
        self._rate_before = 0.0

    def is_wanted(self, asked: int, now_s: float) -> bool:
        """Asked once a turn, before it; `asked` is what its calls so far ask for."""
        self._turn += 1
        self._asked += asked
        if self._turn == self._pause - WINDOW:
            self._asked, self._since_s = 0, now_s
        elif self._turn == self._pause:
            self._rate_before = self._rate(now_s)
            self._asked, self._since_s = 0, now_s
            return True
        elif self._turn == self._pause + WINDOW:
            has_paid = self._rate(now_s) > PAYS * self._rate_before
            self._pause = SOONEST if has_paid else min(2 * self._pause, LATEST)
            self._turn = 0
        return False

    def _rate(self, now_s: float) -> float:
        return self._asked / max(now_s - self._since_s, 1e-6)
