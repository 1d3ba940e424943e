"""`omnirelay serve`: a node in this process, until it is told to stop."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from omnirelay.cli.client import ConfigFlag, is_given
from omnirelay.cli.ending import CommandFailed, JsonFlag, print_json
from omnirelay.model.errors import InvalidOption, Unavailable
from omnirelay.node.keys import BadSetting
from omnirelay.node.sources import Sources, load

if TYPE_CHECKING:
    from omnirelay.node.node import Node


def _option(key: str, help_: str, **more: Any) -> Any:
    """Any: typer's own description of an option."""
    variable = f"OMNIRELAY_{key.upper().replace('.', '_')}"
    # The key's variable counts for every command: one more for `serve` alone would say nothing.
    return typer.Option(
        envvar=variable, help=help_, show_default=False, allow_from_autoenv=False, **more
    )


DataFlag = Annotated[
    str | None, _option("data", "Folder of its journals. [default: ./.omnirelay]", metavar="DIR")
]
HttpFlag = Annotated[
    str | None, _option("http", "HOST:PORT; port 0 picks a free one. [default: 127.0.0.1:7400]")
]
GrpcFlag = Annotated[str | None, _option("grpc", "HOST:PORT. [default: 127.0.0.1:7401]")]
StreamFlag = Annotated[
    str | None, _option("stream", "HOST:PORT or unix:/path. [default: 127.0.0.1:7402]")
]
ControlFlag = Annotated[
    str | None,
    _option("control", "HOST:PORT of health, metrics, control plane and dashboard, apart."),
]
NamespaceFlag = Annotated[
    list[str] | None,
    _option("namespace", "A queue to serve; may come several times. [default: resourcelease]"),
]
MirrorFlag = Annotated[
    list[str] | None,
    typer.Option(
        envvar="OMNIRELAY_MIRRORS",
        metavar="URL",
        help="A journal kept the same as the queue's own; may come several times.",
        show_default=False,
        allow_from_autoenv=False,
    ),
]
StandbyFlag = Annotated[
    bool | None, _option("standby", "Follow what another region mirrors here, until promoted.")
]
PeerFlag = Annotated[
    list[str] | None,
    _option("mesh.peers", "Another node's stream address; several times.", metavar="URL"),
]
AdvertiseFlag = Annotated[
    str | None,
    _option("mesh.advertise", "Where other nodes reach this one over stream.", metavar="URL"),
]
EpochFlag = Annotated[
    float | None, _option("mesh.epoch_s", "Seconds a silent owner keeps a queue. [default: 2]")
]
SetFlag = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Any other key, as in omnirelay.toml."),
]


def serve(
    context: typer.Context,
    *,
    data: DataFlag = None,
    http: HttpFlag = None,
    grpc: GrpcFlag = None,
    stream: StreamFlag = None,
    control: ControlFlag = None,
    journal: Annotated[
        str | None, _option("journal", "Where all queues keep their journals.", metavar="URL")
    ] = None,
    mirror: MirrorFlag = None,
    standby: StandbyFlag = None,
    namespace: NamespaceFlag = None,
    hub: Annotated[
        bool | None, _option("hub", "Keep the journals of nodes that name hub://HOST:PORT.")
    ] = None,
    ready_file: Annotated[
        str | None, _option("ready_file", "Gets the addresses once it is ready.", metavar="FILE")
    ] = None,
    node_id: Annotated[str | None, _option("node_id", "Its name. [default: host and pid]")] = None,
    require: Annotated[
        str | None,
        _option("require", "What journals must survive: process_kill, power_loss, node_loss."),
    ] = None,
    insecure: Annotated[
        bool | None, _option("insecure", "Listen beyond loopback although nobody is proved.")
    ] = None,
    grace_s: Annotated[
        float | None, _option("grace_s", "Seconds to finish calls in when stopping. [default: 10]")
    ] = None,
    log_level: Annotated[str | None, _option("log_level", "[default: warning]")] = None,
    rate_per_s: Annotated[
        float | None, _option("limits.rate_per_s", "Calls a second one principal may make.")
    ] = None,
    burst: Annotated[
        int | None, _option("limits.burst", "Calls it may make at once. [default: 1000]")
    ] = None,
    peer: PeerFlag = None,
    advertise: AdvertiseFlag = None,
    epoch_s: EpochFlag = None,
    set_: SetFlag = None,
    config: ConfigFlag = None,
    json: JsonFlag = False,
) -> None:
    """Run a node until SIGTERM or Ctrl-C; it then finishes what is under way."""
    with starting():
        settings = node_sources(context, set_, config).node()
        from omnirelay.node.run import serve as serve_until_stopped

        said = _say_json if json else _say
        code = serve_until_stopped(settings, ready=said)
    raise typer.Exit(code)


def node_sources(context: typer.Context, set_: list[str] | None, config: str | None) -> Sources:
    """The flags are those of the command at hand, as far as they are keys of a node."""
    flags = {
        _KEYS.get(name, name): value
        for name, value in context.params.items()
        if name not in _OTHERS and is_given(context, name)
    }
    return load({**assignments(set_), **flags}, os.environ, config=config)


_KEYS = {
    "mirror": "mirrors",
    "rate_per_s": "limits.rate_per_s",
    "burst": "limits.burst",
    "peer": "mesh.peers",
    "advertise": "mesh.advertise",
    "epoch_s": "mesh.epoch_s",
}
_OTHERS = ("set_", "config", "json", "seed")


def assignments(given: list[str] | None) -> dict[str, str]:
    found = {}
    for one in given or ():
        key, equals, value = one.partition("=")
        if not equals or not key:
            raise typer.BadParameter("write --set KEY=VALUE", param_hint="--set")
        found[key] = value
    return found


@contextmanager
def starting() -> Iterator[None]:
    """What keeps a node from starting, said as what it is: a setting, or a failure of here. It is
    not something out of reach."""
    try:
        yield
    except ModuleNotFoundError as missing:
        raise CommandFailed(
            f"a node needs {missing.name}: pip install 'omnirelay[node]'"
        ) from missing
    except BadSetting:
        raise
    except InvalidOption as error:
        raise BadSetting(error.message) from error
    except Unavailable as error:
        raise CommandFailed(error.message) from error


Ready = Callable[["Node"], None]


def _say(node: "Node") -> None:
    names = ", ".join(node.settings.all_namespaces())
    if node.settings.hub:
        names = f"{names} and a hub" if names else "a hub"
    print(f"node {node.node_id} serves {names} at {' '.join(node.urls.values())}", flush=True)


def _say_json(node: "Node") -> None:
    print_json({**node.urls, "pid": os.getpid(), "nodeId": node.node_id})
    print(end="", flush=True)
