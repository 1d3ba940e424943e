"""Each house rule catches a planted offence and leaves the lawful neighbour alone."""

import pytest

from tests.architecture import rules
from tests.architecture.rules import Source


def room(text: str, path: str = "sdk/client.py") -> Source:
    return Source(rules.PACKAGE + path, text)


def test_a_file_of_401_lines_is_too_long() -> None:
    assert list(rules.long_file(room("x = 1\n" * 401)))
    assert not list(rules.long_file(room("x = 1\n" * 400)))


def test_a_function_of_61_lines_is_too_long() -> None:
    assert list(rules.shapeless_functions(room("def f():\n" + "    x = 1\n" * 60)))
    assert not list(rules.shapeless_functions(room("def f():\n" + "    x = 1\n" * 59)))


def test_only_positional_parameters_count_and_self_does_not() -> None:
    assert list(rules.shapeless_functions(room("def f(a, b, c, d, e, f): ...")))
    assert not list(rules.shapeless_functions(room("def f(self, a, b, c, d, e, *, f): ...")))


DEEP = """
def f():
    for a in b:
        if a:
            try:
                while a:
                    pass
            finally:
                pass
"""
FLAT = """
async def f():
    async with x:
        for a in b:
            if a == 1:
                pass
            elif a == 2:
                pass
            elif a == 3:
                def g():
                    if a:
                        pass
            else:
                with y:
                    if z:
                        pass
"""


def test_nesting_counts_branches_but_neither_scopes_nor_elif() -> None:
    assert list(rules.shapeless_functions(room(DEEP)))
    assert not list(rules.shapeless_functions(room(FLAT)))


@pytest.mark.parametrize(
    "text",
    [
        "import time\ntime.time()",
        "import time as t\nnow = t.monotonic",
        "from time import monotonic_ns as now\nnow()",
        "import random\nrandom.Random(1).random()",
        "from secrets import token_hex\ntoken_hex()",
        "from datetime import datetime, UTC\ndatetime.now(UTC)",
        "import datetime\ndatetime.datetime.now()",
        "import os\nos.environ['HOME']",
        "import os.path\nos.urandom(4)",
        "import uuid\nuuid.uuid4()",
    ],
)
def test_a_call_to_the_outside_is_seen_under_any_name(text: str) -> None:
    assert len(list(rules.outside_calls(room(text)))) == 1


def test_lawful_neighbours_of_outside_calls_pass() -> None:
    lawful = (
        "import time, os, uuid\ntime.strftime('')\nos.path.join('')\nuuid.UUID('')\nself.time()"
    )
    assert not list(rules.outside_calls(room(lawful)))


@pytest.mark.parametrize("path", ["model/ports.py", "stores/sqlite.py", "cli/lease.py"])
def test_adapters_and_ports_may_touch_the_outside(path: str) -> None:
    assert not list(rules.outside_calls(room("import time\ntime.time()", path)))


@pytest.mark.parametrize(
    "handler",
    [
        "except Exception: log()",
        "except BaseException as error: keep(error)",
        "except (ValueError, Exception): pass",
        "except: pass",
    ],
)
def test_a_handler_that_swallows_everything_is_named(handler: str) -> None:
    source = room(f"class A:\n  def f(self):\n    try: g()\n    {handler}\n")
    assert [where for where, _ in rules.broad_excepts(source)] == ["sdk/client.py::A.f"]


def test_suppressing_everything_is_swallowing_too() -> None:
    source = room("def f():\n  with contextlib.suppress(Exception): g()\n")
    assert [where for where, _ in rules.broad_excepts(source)] == ["sdk/client.py::f"]


@pytest.mark.parametrize(
    "handler", ["except ValueError: pass", "except BaseException: undo(); raise"]
)
def test_narrow_handlers_and_those_that_raise_again_pass(handler: str) -> None:
    assert not list(rules.broad_excepts(room(f"try: g()\n{handler}\n")))


def test_an_integer_bound_outside_limits_is_seen() -> None:
    assert list(rules.scattered_bounds(room("INBOX_MAX: Final = 1 << 16")))
    assert list(rules.scattered_bounds(room("class A:\n    _TRIES_MAX = 3")))
    assert not list(rules.scattered_bounds(room("INBOX_MAX = limits.INBOX_MAX\nretries = 3")))
    assert not list(rules.scattered_bounds(room("INBOX_MAX = 3", "model/limits.py")))


def test_a_module_nobody_names_is_dead() -> None:
    def dead(*sources: Source, entries: tuple[str, ...] = ()) -> list[str]:
        return list(rules.dead_modules(sources, entries))

    module = room("x = 1")
    user = Source("tests/unit/test_client.py", "import omnirelay.sdk.client")
    assert dead(module)
    assert dead(module, user), "a test alone does not keep a module alive"
    assert not dead(module, Source("examples/one.py", "import omnirelay.sdk.client"))
    assert not dead(module, entries=("omnirelay.sdk.client",))
    assert dead(module, room("import omnirelay.sdk.client_sync", "__init__.py")), "a longer name"
    front = rules.PACKAGE + "__init__.py"
    for text in (
        "from omnirelay.sdk.client import x",
        "from omnirelay.sdk import client",
        "from .sdk import client",
        "LAZY = {'x': 'omnirelay.sdk.client:x'}",
    ):
        assert not dead(module, Source(front, text)), text


def test_the_test_kit_may_live_on_the_tests() -> None:
    kit = room("x = 1", "testing/loop.py")
    user = Source("tests/unit/test_loop.py", "from omnirelay.testing.loop import x")
    assert not list(rules.dead_modules([kit, user], ()))


@pytest.mark.parametrize(
    "line",
    [
        "# TO" + "DO later",
        "see /ho" + "me/ann/notes",
        'open("/wo' + 'rk/x")',
        "https://files.python" + "hosted.org/x",
    ],
)
def test_stray_text_is_seen(line: str) -> None:
    assert list(rules.stray_text("docs/x.md", line))


@pytest.mark.parametrize(
    "line", ["POST /v1/resourcelease/work", "./wo" + "rk/x", "to do", "{base}/home/x"]
)
def test_text_that_only_looks_stray_passes(line: str) -> None:
    assert not list(rules.stray_text("docs/x.md", line))
