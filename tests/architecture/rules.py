"""The house rules that a program can check, each a function from sources to complaints.

Kept apart from the tests so that every rule is also shown to catch a planted offence.
"""

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final

FILE_LINES_LIMIT: Final = 400
FUNCTION_LINES_LIMIT: Final = 60
POSITIONAL_LIMIT: Final = 5
NESTING_LIMIT: Final = 3

PACKAGE: Final = "src/omnirelay/"

# Where time, chance, the environment and sockets may be touched: the ports and the adapters.
OUTSIDE_DOORS: Final = (
    "model/ports.py",
    "stores/",
    "transports/",
    "cli/",
    "node/",
    "testing/",
    "pipeline/java.py",
    "pipeline/session.py",
)

BANNED: Final = (
    "time.time",
    "time.time_ns",
    "time.monotonic",
    "time.monotonic_ns",
    "time.perf_counter",
    "time.perf_counter_ns",
    "time.sleep",
    "datetime.datetime.now",
    "datetime.datetime.utcnow",
    "datetime.datetime.today",
    "datetime.date.today",
    "random",
    "secrets",
    "uuid.uuid1",
    "uuid.uuid4",
    "os.environ",
    "os.getenv",
    "os.urandom",
    "socket.socket",
    "socket.create_connection",
)

UNFINISHED: Final = re.compile(r"\b(?:TO" r"DO|FIX" r"ME|XX" r"X)\b")
# A folder of somebody's machine, not the same letters inside an address or a relative path.
MACHINE_PATH: Final = re.compile(r"(?<![\w./}~-])/(?:home|root|work|Users)/\w|\b[A-Z]:\\Users\\\w")
REGISTRY_HOST: Final = re.compile(r"\b(?:pypi" r"\.org|python" r"hosted\.org|index" r"-url)\b")
BOUND_NAME: Final = re.compile(r"_?[A-Z][A-Z0-9_]*_MAX")

AnyFunction = ast.FunctionDef | ast.AsyncFunctionDef
_DEEPER: Final = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.Try, ast.TryStar, ast.Match)


@dataclass(frozen=True)
class Source:
    """One Python file; `path` is relative to the repository, with forward slashes."""

    path: str
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text, filename=self.path)

    @property
    def room_path(self) -> str:
        return self.path.removeprefix(PACKAGE)

    @property
    def module(self) -> str:
        dotted = self.path.removeprefix("src/").removesuffix(".py").replace("/", ".")
        return dotted.removesuffix(".__init__")

    def at(self, node: ast.expr | ast.stmt | ast.excepthandler, message: str) -> str:
        return f"{self.path}:{node.lineno}: {message}"


# -- size and shape -----------------------------------------------------------------------------


def long_file(source: Source) -> Iterator[str]:
    lines = source.text.count("\n")
    if lines > FILE_LINES_LIMIT:
        yield f"{source.path}: {lines} lines, {FILE_LINES_LIMIT} at most; it is two files"


def shapeless_functions(source: Source) -> Iterator[str]:
    for node in ast.walk(source.tree):
        if isinstance(node, AnyFunction):
            yield from _shape_of(source, node)


def _shape_of(source: Source, function: AnyFunction) -> Iterator[str]:
    lines = (function.end_lineno or function.lineno) - function.lineno + 1
    if lines > FUNCTION_LINES_LIMIT:
        yield source.at(
            function, f"{function.name} has {lines} lines, {FUNCTION_LINES_LIMIT} at most"
        )
    names = [argument.arg for argument in (*function.args.posonlyargs, *function.args.args)]
    positional = len(names) - (names[:1] in (["self"], ["cls"]))
    if positional > POSITIONAL_LIMIT:
        yield source.at(
            function,
            f"{function.name} takes {positional} positional parameters, {POSITIONAL_LIMIT} at most",
        )
    depth = _depth_of(function.body)
    if depth > NESTING_LIMIT:
        yield source.at(function, f"{function.name} nests {depth} deep, {NESTING_LIMIT} at most")


def _depth_of(body: Iterable[ast.AST]) -> int:
    """Branches, loops and tries around the deepest statement. A `with` is a scope, not a branch,
    and `elif` stands beside its `if`; a function or class inside starts from nothing again."""
    return max((_depth_below(node) for node in body), default=0)


def _depth_below(node: ast.AST) -> int:
    if isinstance(node, AnyFunction | ast.ClassDef | ast.Lambda):
        return 0
    inner = 0
    for child in ast.iter_child_nodes(node):
        is_elif = isinstance(node, ast.If) and node.orelse == [child] and isinstance(child, ast.If)
        inner = max(inner, _depth_below(child) - is_elif)
    return inner + isinstance(node, _DEEPER)


# -- doors to the outside -----------------------------------------------------------------------


def outside_calls(source: Source) -> Iterator[str]:
    if source.room_path.startswith(OUTSIDE_DOORS):
        return
    origin = dict(_imported_names(source.tree))
    pending: list[ast.AST] = [source.tree]
    while pending:
        node = pending.pop()
        name = _dotted(node, origin)
        if name is None:
            pending.extend(ast.iter_child_nodes(node))
        elif _is_banned(name) and isinstance(node, ast.expr):
            yield source.at(node, f"{name} comes in through a port, by constructor")


def _imported_names(tree: ast.Module) -> Iterator[tuple[str, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                top = alias.name.partition(".")[0]
                yield (alias.asname, alias.name) if alias.asname else (top, top)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                yield alias.asname or alias.name, f"{node.module}.{alias.name}"


def _dotted(node: ast.AST, origin: Mapping[str, str]) -> str | None:
    if isinstance(node, ast.Name):
        return origin.get(node.id)
    if isinstance(node, ast.Attribute):
        owner = _dotted(node.value, origin)
        return f"{owner}.{node.attr}" if owner else None
    return None


def _is_banned(name: str) -> bool:
    return any(name == banned or name.startswith(f"{banned}.") for banned in BANNED)


# -- errors -------------------------------------------------------------------------------------


def broad_excepts(source: Source) -> Iterator[tuple[str, str]]:
    """(`room/file.py::Class.function`, complaint) of each handler that swallows everything."""
    for where, node in _scoped(source.tree, ""):
        if isinstance(node, ast.ExceptHandler):
            is_broad = _names_everything(node.type) and not _raises_again(node)
        elif isinstance(node, ast.Call):
            is_broad = _suppresses_everything(node)
        else:
            continue
        if is_broad:
            complaint = source.at(node, f"{where or 'the module'} catches everything")
            yield f"{source.room_path}::{where}", complaint


def _scoped(node: ast.AST, where: str) -> Iterator[tuple[str, ast.AST]]:
    for child in ast.iter_child_nodes(node):
        yield where, child
        inner = where
        if isinstance(child, AnyFunction | ast.ClassDef):
            inner = f"{where}.{child.name}".lstrip(".")
        yield from _scoped(child, inner)


def _names_everything(caught: ast.expr | None) -> bool:
    if caught is None:
        return True
    if isinstance(caught, ast.Tuple):
        return any(_names_everything(element) for element in caught.elts)
    return isinstance(caught, ast.Name) and caught.id in {"Exception", "BaseException"}


def _raises_again(handler: ast.ExceptHandler) -> bool:
    last = handler.body[-1]
    return isinstance(last, ast.Raise) and last.exc is None


def _suppresses_everything(call: ast.Call) -> bool:
    name = ast.unparse(call.func).rpartition(".")[2]
    return name == "suppress" and any(_names_everything(argument) for argument in call.args)


# -- bounds -------------------------------------------------------------------------------------


def scattered_bounds(source: Source) -> Iterator[str]:
    if source.room_path == "model/limits.py":
        return
    for node in ast.walk(source.tree):
        if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None:
            continue
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        names = [target.id for target in targets if isinstance(target, ast.Name)]
        if any(BOUND_NAME.fullmatch(name) for name in names) and _has_integer(node.value):
            yield source.at(node, f"{', '.join(names)} belongs in model/limits.py")


def _has_integer(value: ast.expr) -> bool:
    return any(
        isinstance(node, ast.Constant) and type(node.value) is int for node in ast.walk(value)
    )


# -- dead modules -------------------------------------------------------------------------------


_USERS = (PACKAGE, "examples/")


def dead_modules(sources: Iterable[Source], entries: Iterable[str]) -> Iterator[str]:
    """Modules of the package that nothing names. What an example shows is for users to call; only
    the test kit may live on the tests alone; `entries` are the modules that a command starts."""
    sources = list(sources)
    alive, alive_for_tests = set(entries), set[str]()
    for source in sources:
        named = set(_modules_named(source)) - {source.module}
        (alive if source.path.startswith(_USERS) else alive_for_tests).update(named)
    for source in sources:
        if not source.path.startswith(PACKAGE) or source.module == "omnirelay":
            continue
        known = alive | alive_for_tests if source.room_path.startswith("testing/") else alive
        below = f"{source.module}."
        if source.module not in known and not any(name.startswith(below) for name in known):
            yield f"{source.path}: nothing imports it"


def _modules_named(source: Source) -> Iterator[str]:
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = _absolute(source, node)
            yield module
            yield from (f"{module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Constant) and str(node.value).startswith("omnirelay."):
            # A lazy import names its module in a string, `omnirelay.x.y` or `omnirelay.x.y:name`.
            yield str(node.value).partition(":")[0]


def _absolute(source: Source, node: ast.ImportFrom) -> str:
    if not node.level:
        return node.module or ""
    parts = source.path.removeprefix("src/").split("/")
    return ".".join([*parts[: len(parts) - node.level], *filter(None, [node.module])])


# -- any text -----------------------------------------------------------------------------------


def stray_text(path: str, text: str) -> Iterator[str]:
    for number, line in enumerate(text.splitlines(), start=1):
        for pattern, complaint in (
            (UNFINISHED, "unfinished work belongs in an issue"),
            (MACHINE_PATH, "a path of one machine"),
            (REGISTRY_HOST, "a package registry's address"),
        ):
            if pattern.search(line):
                yield f"{path}:{number}: {complaint}: {line.strip()[:80]}"
