"""Calls that an owner told no, counted until the next commit takes them along (docs/adr/0019).

They have no commit of their own and nobody waits for one. What was gathered when a term ends is
lost with it: a refusal is a hint to whoever looks for zombies and strangers, never a promise.
"""

import re
from collections import deque

from omnirelay.lease.commands import (
    Command,
    Complete,
    Enqueue,
    Fail,
    Grant,
    Heartbeat,
    Redrive,
    Release,
    Restore,
    TellRefused,
)
from omnirelay.lease.records import Refused
from omnirelay.lease.state import QueueState
from omnirelay.model import limits
from omnirelay.model.errors import NotHolder, OmniRelayError, QueueFull, StaleToken, UnknownToken
from omnirelay.model.items import Token

_TOLD = (StaleToken, UnknownToken, NotHolder, QueueFull)
"""Refusals that say something about who asked. Waits that end, and bad input, do not."""
_VERBS: dict[type[Command], str] = {
    Enqueue: "enqueue",
    Grant: "lease",
    Heartbeat: "heartbeat",
    Complete: "complete",
    Fail: "fail",
    Release: "release",
    Restore: "restore",
    Redrive: "redrive",
}
_LEASE_ID = re.compile(r"[0-9a-f-]{36}")

_Shown = tuple[int, int, str] | tuple[None, None, None]
_By = tuple[str | None, str, str | None]
_Key = tuple[str, str, _Shown, str | None, str, str | None]
_NOTHING: _Shown = (None, None, None)


class Refusals:
    """Of one term. Whoever takes the turn writes here."""

    def __init__(
        self, state: QueueState, every_ms: int, denied: deque[Refused] | None = None
    ) -> None:
        """`denied`: what others put in who take no turn."""
        self._state = state
        self._every_ms = every_ms
        self._denied = deque[Refused]() if denied is None else denied
        self._times: dict[_Key, int] = {}
        self._since = 0

    def __bool__(self) -> bool:
        return bool(self._times or self._denied)

    def note(
        self, asked: Command, error: OmniRelayError, now: int, token: Token | None = None
    ) -> None:
        """`token`: of a command that shows several, the one that was refused."""
        verb = _VERBS.get(type(asked))
        if verb is None or not isinstance(error, _TOLD):
            return
        token = token or getattr(asked, "token", None)
        if token is not None and self._state.finished.get(token.sequence_id) == token.lease_id:
            return  # its holder finished it, and a heartbeat of before came after: nobody's fault
        shown = self._shown(token)
        self._note(verb, error.code, shown, (asked.peer_id, asked.principal, asked.proof), now)

    def _note(self, verb: str, code: str, shown: _Shown, by: _By, now: int) -> None:
        if not self._times:
            self._since = now
        # When there is no room for one more token, who asked is still worth a line.
        if not self._count((verb, code, shown, *by), limits.REFUSALS_MAX):
            self._count((verb, code, _NOTHING, *by), 2 * limits.REFUSALS_MAX)

    def _count(self, key: _Key, most: int) -> bool:
        times = self._times
        if key not in times and len(times) >= most:
            return False
        times[key] = times.get(key, 0) + 1
        return True

    def _shown(self, token: Token | None) -> _Shown:
        """Only what may have been granted here: others write what they like into a token."""
        if (
            token is None
            or not 0 < token.sequence_id <= self._state.last_id
            or not 0 < token.attempt <= 2 * limits.ATTEMPTS_MAX
            or not _LEASE_ID.fullmatch(token.lease_id)
        ):
            return _NOTHING
        return token.sequence_id, token.attempt, token.lease_id

    def are_due(self, now: int) -> bool:
        while self._denied:
            one = self._denied.popleft()
            self._note(one.verb, one.code, _NOTHING, (one.peer_id, one.principal, one.proof), now)
        return bool(self._times) and now - self._since >= self._every_ms

    def take(self) -> TellRefused:
        """All that was gathered; counting begins anew."""
        gathered, self._times = self._times, {}
        return TellRefused(
            refused=tuple(
                Refused(verb, code, times, *shown, *by)
                for (verb, code, shown, *by), times in gathered.items()
            )
        )
