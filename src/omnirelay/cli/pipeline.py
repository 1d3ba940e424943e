"""`omnirelay pipeline`: journals into tables, and what is asked of them."""

from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec

import typer

app = typer.Typer(help="Tables, proofs and pictures of journals, on Spark.", no_args_is_help=True)

_PARTS = ("audit", "replay", "report", "synth", "lineage")
"""`cli/pipeline_<part>.py` has a function of that name; it becomes the command."""


def _parts() -> Iterator[str]:
    return (part for part in _PARTS if find_spec(f"omnirelay.cli.pipeline_{part}") is not None)


for _part in _parts():
    app.command(_part)(getattr(import_module(f"omnirelay.cli.pipeline_{_part}"), _part))
