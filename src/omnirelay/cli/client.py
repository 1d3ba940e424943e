"""What all commands share that call a node: the flags that say how to reach it."""

import asyncio
import functools
import inspect
import os
from collections.abc import Awaitable, Callable
from typing import Annotated, Any, Concatenate, ParamSpec, TypeVar

import typer

from omnirelay.cli.calling import Caller
from omnirelay.cli.ending import JsonFlag
from omnirelay.node.keys import CLIENT, ClientSettings
from omnirelay.node.sources import FILE_VARIABLE, load_client

P = ParamSpec("P")
T = TypeVar("T")

ConfigFlag = Annotated[
    str | None,
    typer.Option(metavar="FILE", envvar=FILE_VARIABLE, help="Instead of ./omnirelay.toml."),
]


def _option(variable: str, help_: str, *names: str, metavar: str | None = None) -> Any:
    """Any: typer's own description of an option."""
    # Its variable counts for every command that calls a node; none of them has one of its own.
    return typer.Option(
        *names,
        envvar=f"OMNIRELAY_{variable}",
        help=help_,
        metavar=metavar,
        show_default=False,
        allow_from_autoenv=False,
    )


def _shared(
    *,
    url: Annotated[
        str | None,
        _option(
            "URL",
            "The node: http(s)://, stream(s):// or grpc(s)://, several parted by commas. "
            "[default: http://127.0.0.1:7400]",
        ),
    ] = None,
    namespace: Annotated[str | None, _option("NAMESPACE", "Which queue of the node.")] = None,
    token: Annotated[
        str | None,
        _option("TOKEN", "Bearer token. A flag can be seen by others: prefer --token-file."),
    ] = None,
    token_file: Annotated[
        str | None, _option("TOKEN_FILE", "File that holds the bearer token.", metavar="FILE")
    ] = None,
    ca_file: Annotated[
        str | None, _option("CA_FILE", "Authority of the node's certificate.", metavar="FILE")
    ] = None,
    cert_file: Annotated[
        str | None, _option("CERT_FILE", "Certificate that proves us.", metavar="FILE")
    ] = None,
    key_file: Annotated[str | None, _option("KEY_FILE", "Its key.", metavar="FILE")] = None,
    server_id: Annotated[
        str | None,
        _option("SERVER_ID", "SPIFFE id of the node's certificate, instead of its host's name."),
    ] = None,
    timeout_s: Annotated[
        float | None,
        _option("TIMEOUT_S", "Seconds a call may take beside its wait. [default: 30]", "--timeout"),
    ] = None,
    retry_s: Annotated[
        float | None,
        _option("RETRY_S", "Seconds to repeat a call nobody answers. [default: 0]", "--retry"),
    ] = None,
    config: ConfigFlag = None,
    json: JsonFlag = False,
) -> None: ...


_SHARED = inspect.signature(_shared, eval_str=True).parameters
_CONTEXT = inspect.Parameter(
    "context", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context
)
_OTHERS = ("config", "json")


class Client:
    """What a command gets in place of those flags."""

    def __init__(self, settings: ClientSettings, *, json: bool) -> None:
        self.settings = settings
        self.json = json

    def run(self, work: Callable[[Caller], Awaitable[T]]) -> T:
        async def call() -> T:
            async with Caller(self.settings) as caller:
                return await work(caller)

        return asyncio.run(call())


def calls_a_node(command: Callable[Concatenate[Client, P], None]) -> Callable[..., None]:
    """A command whose first parameter is the client: typer sees the shared flags instead."""
    own = list(inspect.signature(command, eval_str=True).parameters.values())[1:]
    seen = [_CONTEXT, *own, *_SHARED.values()]

    @functools.wraps(command)
    def parsed(context: typer.Context, **given: Any) -> None:  # Any: whatever the flags hold
        shared = {name: given.pop(name) for name in _SHARED}
        client = Client(_settings(context, shared), json=bool(shared["json"]))
        command(client, **given)  # type: ignore[call-arg]

    parsed.__signature__ = inspect.Signature(seen)  # type: ignore[attr-defined]
    parsed.__annotations__ = {one.name: one.annotation for one in seen}
    return parsed


def _settings(context: typer.Context, shared: dict[str, Any]) -> ClientSettings:
    """Any: whatever the flags hold."""
    names = [name for name in _SHARED if name not in _OTHERS]
    flags = {f"{CLIENT}.{name}": shared[name] for name in names if is_given(context, name)}
    return load_client(flags, os.environ, config=shared["config"]).client()


def is_given(context: typer.Context, name: str) -> bool:
    """By a flag, or by the table of this command in the file; the environment is read elsewhere."""
    source = context.get_parameter_source(name)
    return source is not None and source.name in ("COMMANDLINE", "DEFAULT_MAP")
