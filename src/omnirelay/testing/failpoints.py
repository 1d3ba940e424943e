"""Makes a process die, fail or dawdle at a named place in production code.

    OMNIRELAY_FAILPOINTS="sqlite.after_commit=kill@3,sqlite.before_commit=raise:eio@1"

Each rule is `name=action@n`: at the n-th time the process comes by (the first, unless said).

    kill           SIGKILL to itself: no handler, no flush, no goodbye
    raise:eio      what a store raises when it cannot tell whether it wrote (OutcomeUnknown)
    raise:enospc   what a store raises when there is no room (DiskFull)
    delay:20       sleeps 20 ms on the spot, holding up whatever thread that is

Production code never reads the variable: the program that a test starts calls `arm_from_env`.
"""

import ast
import os
import re
import signal
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Never

import omnirelay
from omnirelay.model.errors import DiskFull, OmniRelayError, OutcomeUnknown
from omnirelay.model.ports import set_failpoint

VARIABLE = "OMNIRELAY_FAILPOINTS"

_RULE = re.compile(
    r"(?P<name>[\w.]+)=(?P<action>kill|raise|delay)(?::(?P<detail>\w+))?(?:@(?P<hit>\d+))?"
)
_RAISED: dict[str, type[OmniRelayError]] = {"eio": OutcomeUnknown, "enospc": DiskFull}


@dataclass(frozen=True, slots=True)
class Rule:
    name: str
    action: str
    detail: str = ""
    hit: int = 1

    def act(self) -> None:
        match self.action:
            case "kill":
                _die()
            case "delay":
                time.sleep(int(self.detail) / 1000)
            case _:
                why = f"failpoint {self.name} raises {self.detail} at hit {self.hit}"
                raise _RAISED[self.detail](why)


def _die() -> Never:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("SIGKILL came back")


def parse_rules(spec: str) -> list[Rule]:
    """Raises ValueError naming the rule that cannot be read."""
    return [_parse(text.strip()) for text in spec.split(",") if text.strip()]


def _parse(text: str) -> Rule:
    found = _RULE.fullmatch(text)
    if found is None:
        raise ValueError(f"not a failpoint rule: {text!r}; write name=kill@3 or name=raise:eio")
    rule = Rule(found["name"], found["action"], found["detail"] or "", int(found["hit"] or 1))
    fits = {
        "kill": not rule.detail,
        "raise": rule.detail in _RAISED,
        "delay": rule.detail.isdigit(),
    }
    if not fits[rule.action] or rule.hit < 1:
        raise ValueError(f"not a failpoint rule: {text!r}; {rule.action} cannot do that")
    return rule


class Armed:
    """The hook itself. Counts every point it passes, whether a rule names it or not."""

    def __init__(self, rules: list[Rule]) -> None:
        self.hits: Counter[str] = Counter()
        self._rules = {(rule.name, rule.hit): rule for rule in rules}

    def __call__(self, name: str) -> None:
        self.hits[name] += 1
        rule = self._rules.get((name, self.hits[name]))
        if rule is not None:
            rule.act()


def arm(spec: str) -> Armed:
    """Raises ValueError for a rule that cannot be read or that names a point nobody has."""
    rules = parse_rules(spec)
    unknown = {rule.name for rule in rules} - enumerate_failpoints().keys()
    if unknown:
        raise ValueError(f"no such failpoints: {', '.join(sorted(unknown))}")
    armed = Armed(rules)
    set_failpoint(armed)
    return armed


def arm_from_env(environment: Mapping[str, str]) -> Armed:
    return arm(environment.get(VARIABLE, ""))


def disarm() -> None:
    set_failpoint(None)


def enumerate_failpoints() -> dict[str, str]:
    """Every `failpoint("…")` of the package and where it stands, read from the source, so that a
    new one is in the list the moment it is written. Raises ValueError for a name that is not a
    literal or that is used twice: a crash there could not be aimed."""
    found: dict[str, str] = {}
    top = Path(omnirelay.__file__).parent
    for path in sorted(top.rglob("*.py")):
        where = path.relative_to(top).as_posix()
        if where == "model/ports.py" or where.startswith("testing/"):
            continue
        for name, line in _points_in(path.read_text(encoding="utf-8"), where):
            if name in found:
                raise ValueError(f"failpoint {name} is at {found[name]} and at {where}:{line}")
            found[name] = f"{where}:{line}"
    return found


def _points_in(text: str, where: str) -> Iterator[tuple[str, int]]:
    if "failpoint(" not in text:
        return
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.Call) or not _is_failpoint(node.func):
            continue
        name = node.args[0] if node.args else None
        if not isinstance(name, ast.Constant) or not isinstance(name.value, str):
            raise ValueError(f"{where}:{node.lineno}: a failpoint's name must be a literal")
        yield name.value, node.lineno


def _is_failpoint(called: ast.expr) -> bool:
    return (isinstance(called, ast.Name) and called.id == "failpoint") or (
        isinstance(called, ast.Attribute) and called.attr == "failpoint"
    )
