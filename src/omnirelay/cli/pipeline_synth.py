"""`omnirelay pipeline synth`: journals with the traffic of a busy mesh, made from a seed."""

from typing import TYPE_CHECKING, Annotated

import typer

from omnirelay.cli.ending import JsonFlag, print_json
from omnirelay.cli.pipeline_places import spark_on
from omnirelay.cli.saying import counted

if TYPE_CHECKING:
    from omnirelay.pipeline.synth import Outcome, Plan


def synth(
    *,
    events: Annotated[int, typer.Option(min=1, help="How many, over all shards.")],
    to: Annotated[
        str,
        typer.Option(
            metavar="PLACE",
            help="sqlite:///file, a file that ends in .jsonl, or the folder of an archive.",
        ),
    ],
    shards: Annotated[int, typer.Option(min=1, help="Over how many shards.")] = 4,
    seed: Annotated[int, typer.Option(help="The same seed makes the same bytes.")] = 0,
    plant: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KIND", help="Damage to put in, each kind in a shard of its own; many."
        ),
    ] = None,
    master: Annotated[
        str | None,
        typer.Option(
            envvar="OMNIRELAY_SPARK_MASTER",
            help="Make it on this Spark; else in processes of this machine.",
            show_default=False,
        ),
    ] = None,
    json: JsonFlag = False,
) -> None:
    """Make journals of any size, whole or with damage in them that an audit must find."""
    from omnirelay.pipeline.synth import Plan

    plan = Plan(events=events, to=to, shards=shards, seed=seed, plants=tuple(plant or ()))
    made = _made(plan, master)
    if json:
        print_json(made)
        return
    print(f"{counted(made.events, 'event')} of {counted(len(made.shards), 'shard')} in {made.to}")
    for one in made.shards:
        if one.planted is not None:
            flaw = one.planted
            print(f"planted {flaw.kind} in {flaw.shard} at {flaw.sequence}: {flaw.check}")


def _made(plan: "Plan", master: str | None) -> "Outcome":
    from omnirelay.pipeline.synth import check, on_spark, synthesize

    if master is None:
        return synthesize(plan)
    check(plan)
    with spark_on(master) as session:
        return synthesize(plan, on_spark(session))
