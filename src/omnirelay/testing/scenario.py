"""Scenarios: what is asked of a queue, and below each line what came of it, as plain text.

    # A stale token is refused.                 a comment
    options lease_duration_ms=1000              QueueOptions of queue A; `options B …` for another
    @0    enqueue table/orders priority=5       time, verb, arguments; `@0 B: enqueue …` asks B
            Enqueue 1 table/orders priority 5   records, answers and refusals, indented

Every queue starts its first epoch at time 0, so the first record anybody sees has sequence 2.
`run` plays the commands on the real core and returns the text with what really came of it: equal
to the file, or the difference is the failure. `python -m omnirelay.testing.scenario FILE…` writes
the files anew, for a person to read before they are committed.

    enqueue TYPE/ID [body= key= request= priority= delay= attempts= lease= attributes=N by=]
    lease WORKER [types=a,b lease= request= max= as=NAME,…]     as: names for the tokens
    heartbeat NAME… [by=]           complete|release NAME [by= fence= attempt=]
    fail NAME [dead] [reason= code= delay= metadata=N by=]
    expire [LIMIT]      stats      inspect ID      snapshot      restart [OPTION=VALUE…]
    drain [MAX] [active] [dead] [as=FILE]          restore FILE [FIELD=VALUE…]
    dead [max= after= type= id=]                   redrive|purge [ID…] [max= type= id=]

`restart` folds the journal again and starts the next epoch; `snapshot` replaces the state by its
stored image. A token may also be written out, as `1:1:` and 32 hexadecimal digits.
"""

import re
import shlex
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from omnirelay.lease import answers, commands
from omnirelay.lease.options import QueueOptions
from omnirelay.model.errors import OmniRelayError
from omnirelay.model.items import Payload, PendingItem, Token
from omnirelay.testing.folded import FoldedQueue, Records, Reply, numbered_lease_id
from omnirelay.testing.wording import answer_lines, record_lines, refusal

INDENT = " " * 8
_REPEATED = re.compile(r".+\*[0-9]+")


class ScenarioError(ValueError):
    """The text is not a scenario; names the line."""


class Words:
    """The arguments of one line; what nobody took is a mistake in the scenario."""

    def __init__(self, words: list[str]) -> None:
        self.plain = [word for word in words if "=" not in word]
        self._named = dict(word.split("=", 1) for word in words if "=" in word)

    def text(self, name: str) -> str | None:
        """A value; `x*600` stands for six hundred of them."""
        value = self._named.pop(name, None)
        if value is None or not _REPEATED.fullmatch(value):
            return value
        one, _, times = value.rpartition("*")
        return one * int(times)

    def number(self, name: str) -> int | None:
        value = self._named.pop(name, None)
        return None if value is None else int(value)

    def numbers(self) -> tuple[int, ...]:
        return tuple(int(word) for word in self.take_all())

    def take(self, default: str | None = None) -> str:
        if self.plain:
            return self.plain.pop(0)
        if default is None:
            raise ScenarioError("an argument is missing")
        return default

    def take_all(self) -> list[str]:
        taken, self.plain = self.plain, []
        return taken

    def flag(self, word: str) -> bool:
        is_there = word in self.plain
        if is_there:
            self.plain.remove(word)
        return is_there

    def rest(self) -> dict[str, str]:
        taken, self._named = self._named, {}
        return taken

    def finish(self) -> None:
        if self.plain or self._named:
            raise ScenarioError(f"not understood: {[*self.plain, *self._named]}")


class Stage:
    """The queues of one scenario and the names it has given to tokens and files."""

    def __init__(self) -> None:
        self.options: dict[str, dict[str, str]] = {}
        self.queues: dict[str, FoldedQueue] = {}
        self.tokens: dict[str, tuple[Token, str]] = {}
        self.files: dict[str, tuple[PendingItem, ...]] = {}
        self.leases = 0

    def queue(self, name: str) -> FoldedQueue:
        if name not in self.queues:
            self.queues[name] = FoldedQueue(name, _options(self.options.get(name, {})))
        return self.queues[name]

    def play(self, line: str) -> Iterator[str]:
        """One command; yields what came of it."""
        time, _, rest = line[1:].partition(" ")
        words = shlex.split(rest)
        name = words.pop(0)[:-1] if words[0].endswith(":") else "A"
        verb = words.pop(0)
        act = _VERBS.get(verb)
        if act is None:
            raise ScenarioError(f"no such verb: {verb}")
        arguments = Words(words)
        try:
            yield from act(self, self.queue(name), int(time), arguments)
        except OmniRelayError as error:
            yield refusal(error)
        arguments.finish()

    def token(self, words: Words) -> tuple[Token, str]:
        """The token a line names, with the fields it forges, and who presents it."""
        name = words.take()
        token, holder = (Token.parse(name), "") if ":" in name else self.tokens[name]
        for field in ("fence", "attempt"):
            forged = words.number(field)
            if forged is not None:
                token = msgspec.structs.replace(token, **{field: forged})
        return token, words.text("by") or holder


def run(text: str) -> str:
    """The scenario again, with what really came of each command. Raises ScenarioError."""
    stage = Stage()
    lines: list[str] = []
    for number, line in enumerate(text.splitlines(), start=1):
        if line[:1].isspace() and line.strip():
            continue
        lines.append(line.rstrip())
        try:
            if line.startswith("@"):
                lines += [INDENT + outcome for outcome in stage.play(line)]
            elif line.startswith("options"):
                _set_options(stage, line)
            elif line.strip() and not line.startswith("#"):
                raise ScenarioError("a line starts with @, #, options or a space")
        except (ScenarioError, ValueError, KeyError) as error:
            raise ScenarioError(f"line {number}: {line.strip()}: {error}") from error
    for queue in stage.queues.values():
        queue.refold()
        queue.through_snapshot()
    return "\n".join(lines) + "\n"


def _set_options(stage: Stage, line: str) -> None:
    words = Words(line.split()[1:])
    stage.options[words.take("A")] = words.rest()
    words.finish()


def _options(settings: dict[str, str]) -> QueueOptions:
    return msgspec.convert(settings, QueueOptions, strict=False)


# -- verbs --------------------------------------------------------------------------------------


def _submit(queue: FoldedQueue, command: commands.Command, now: int) -> Iterator[str]:
    records, reply = queue.submit(command, now)
    yield from _outcome(records, reply)


def _outcome(records: Records, reply: Reply) -> Iterator[str]:
    for record in records:
        yield from record_lines(record)
    yield from answer_lines(reply, had_records=bool(records))


def _enqueue(stage: Stage, queue: FoldedQueue, now: int, words: Words) -> Iterator[str]:
    kind, _, name = words.take().partition("/")
    extra = words.number("attributes") or 0
    payload = Payload(
        kind,
        name,
        words.text("key"),
        body=(words.text("body") or "").encode(),
        attributes={f"a{n}": "x" for n in range(extra)} or None,
        request_id=words.text("request"),
    )
    command = commands.Enqueue(
        payload=payload,
        priority=words.number("priority") or 0,
        delay_ms=words.number("delay") or 0,
        max_attempts=words.number("attempts"),
        lease_duration_ms=words.number("lease"),
        principal=words.text("by") or "producer",
    )
    yield from _submit(queue, command, now)


def _lease(stage: Stage, queue: FoldedQueue, now: int, words: Words) -> Iterator[str]:
    worker = words.take()
    names = (words.text("as") or "").split(",")
    types, length, request = words.text("types"), words.number("lease"), words.text("request")
    for index in range(words.number("max") or 1):
        stage.leases += 1
        command = commands.Grant(
            lease_id=numbered_lease_id(stage.leases),
            resource_types=tuple(types.split(",")) if types is not None else None,
            lease_duration_ms=length,
            request_id=request,
            index=index,
            principal=worker,
            peer_id=worker,
        )
        records, reply = queue.submit(command, now)
        leases = reply if isinstance(reply, tuple) else ()
        for name, lease in zip(names[index:], leases, strict=False):
            stage.tokens[name] = (lease.token, worker)
        yield from _outcome(records, reply)
        if not records:
            return


def _heartbeat(stage: Stage, queue: FoldedQueue, now: int, words: Words) -> Iterator[str]:
    by = words.text("by")
    named = [stage.tokens[name] for name in words.take_all()]
    tokens = tuple(token for token, _ in named)
    yield from _submit(queue, commands.Heartbeat(tokens=tokens, principal=by or named[0][1]), now)


def _complete(stage: Stage, queue: FoldedQueue, now: int, words: Words) -> Iterator[str]:
    token, by = stage.token(words)
    yield from _submit(queue, commands.Complete(token=token, principal=by), now)


def _release(stage: Stage, queue: FoldedQueue, now: int, words: Words) -> Iterator[str]:
    token, by = stage.token(words)
    yield from _submit(queue, commands.Release(token=token, principal=by), now)


def _fail(stage: Stage, queue: FoldedQueue, now: int, words: Words) -> Iterator[str]:
    token, by = stage.token(words)
    extra = words.number("metadata") or 0
    command = commands.Fail(
        token=token,
        principal=by,
        requeue=not words.flag("dead"),
        reason=words.text("reason"),
        error_code=words.text("code"),
        delay_ms=words.number("delay"),
        metadata={f"m{n}": "x" for n in range(extra)} or None,
    )
    yield from _submit(queue, command, now)


def _expire(stage: Stage, queue: FoldedQueue, now: int, words: Words) -> Iterator[str]:
    yield from _submit(queue, commands.Expire(limit=int(words.take("1000"))), now)


def _drain(stage: Stage, queue: FoldedQueue, now: int, words: Words) -> Iterator[str]:
    active, dead, name = words.flag("active"), words.flag("dead"), words.text("as")
    command = commands.Drain(
        max_items=int(words.take("1000")), include_active=active, include_dead=dead
    )
    records, reply = queue.submit(command, now)
    if name is not None and isinstance(reply, answers.DrainPage):
        # Through JSON, as an operator's file would go.
        stored = msgspec.json.encode(reply.items)
        stage.files[name] = msgspec.json.decode(stored, type=tuple[PendingItem, ...])
    yield from _outcome(records, reply)


def _restore(stage: Stage, queue: FoldedQueue, now: int, words: Words) -> Iterator[str]:
    names, changes = words.take().split("+"), words.rest()
    items = tuple(_changed(item, changes) for name in names for item in stage.files[name])
    yield from _submit(queue, commands.Restore(items=items), now)


def _changed(item: PendingItem, changes: dict[str, str]) -> PendingItem:
    """The item with fields written over, as an operator's editor might; `x.y=` reaches inside."""
    stored: dict[str, Any] = msgspec.to_builtins(item)  # Any: an edited file may hold anything
    for path, value in changes.items():
        *outer, last = path.split(".")
        place = stored
        for name in outer:
            place = place[name]
        place[last] = value
    return msgspec.convert(stored, PendingItem, strict=False)


def _dead(stage: Stage, queue: FoldedQueue, now: int, words: Words) -> Iterator[str]:
    command = commands.ListDead(
        max_items=words.number("max") or 100,
        after=words.number("after") or 0,
        resource_type=words.text("type"),
        resource_id=words.text("id"),
    )
    yield from _submit(queue, command, now)


def _redrive(stage: Stage, queue: FoldedQueue, now: int, words: Words) -> Iterator[str]:
    yield from _submit(queue, commands.Redrive(**_chosen(words)), now)


def _purge(stage: Stage, queue: FoldedQueue, now: int, words: Words) -> Iterator[str]:
    yield from _submit(queue, commands.Purge(**_chosen(words)), now)


def _chosen(words: Words) -> dict[str, Any]:  # Any: keyword arguments of two commands
    most = words.number("max")
    return {
        "max_items": 100 if most is None else most,
        "sequence_ids": words.numbers() or None,
        "resource_type": words.text("type"),
        "resource_id": words.text("id"),
    }


def _stats(stage: Stage, queue: FoldedQueue, now: int, words: Words) -> Iterator[str]:
    yield from _submit(queue, commands.ReadStats(), now)


def _inspect(stage: Stage, queue: FoldedQueue, now: int, words: Words) -> Iterator[str]:
    yield from _submit(queue, commands.Inspect(sequence_id=int(words.take())), now)


def _restart(stage: Stage, queue: FoldedQueue, now: int, words: Words) -> Iterator[str]:
    changes = words.rest()
    if changes:
        settings = stage.options.setdefault(queue.name, {})
        settings |= changes
        queue.options = _options(settings)
    queue.refold()
    for record in queue.start_epoch(now):
        yield from record_lines(record)


def _snapshot(stage: Stage, queue: FoldedQueue, now: int, words: Words) -> Iterator[str]:
    queue.through_snapshot()
    return iter(())


_VERBS: dict[str, Callable[[Stage, FoldedQueue, int, Words], Iterator[str]]] = {
    "enqueue": _enqueue,
    "lease": _lease,
    "heartbeat": _heartbeat,
    "complete": _complete,
    "release": _release,
    "fail": _fail,
    "expire": _expire,
    "drain": _drain,
    "restore": _restore,
    "dead": _dead,
    "redrive": _redrive,
    "purge": _purge,
    "stats": _stats,
    "inspect": _inspect,
    "restart": _restart,
    "snapshot": _snapshot,
}


def main() -> None:
    for name in sys.argv[1:]:
        path = Path(name)
        path.write_text(run(path.read_text()))


if __name__ == "__main__":
    main()
