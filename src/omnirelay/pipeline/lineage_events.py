"""A start or an end of an attempt as an OpenLineage event, of the official client's types."""

from collections.abc import Iterator
from typing import Any, ClassVar

import attr
from openlineage.client.event_v2 import (
    InputDataset,
    Job,
    OutputDataset,
    Run,
    RunEvent,
    RunState,
)
from openlineage.client.facet_v2 import RunFacet, error_message_run, parent_run
from openlineage.client.serde import Serde

from omnirelay.model.items import to_time
from omnirelay.pipeline.lineage_ids import item_run_id, run_id

PRODUCER = "urn:omnirelay:pipeline:1"
LEASE_SCHEMA = "urn:omnirelay:facet:omniRelay_lease:1-0-0#/$defs/LeaseRunFacet"
"""Its text is `assets/omniRelay_lease.json`."""
LEASE_FACET = "omniRelay_lease"
ITEM_JOB = "{}.item"
Row = dict[str, Any]  # Any: one row of lineage_sql.steps

_STATES = {
    "LeaseGranted": RunState.START,
    "Completed": RunState.COMPLETE,
    "Failed": RunState.FAIL,
    "Expired": RunState.ABORT,
    "Released": RunState.ABORT,
    "DrainSnapshot": RunState.ABORT,
}
_OUTCOMES = {
    "Completed": "completed",
    "Failed": "failed",
    "Expired": "expired",
    "Released": "released",
    "DrainSnapshot": "drained",
}


@attr.define
class LeaseRunFacet(RunFacet):
    """The lease that a run is. What is not known at its start comes with its end."""

    shard: str
    sequence: int
    sequenceId: int  # noqa: N815 - names of the facet's schema
    attempt: int
    fence: int
    principal: str
    peerId: str | None = attr.field(default=None)  # noqa: N815
    waitMs: int | None = attr.field(default=None)  # noqa: N815
    holdMs: int | None = attr.field(default=None)  # noqa: N815
    outcome: str | None = attr.field(default=None)
    disposition: str | None = attr.field(default=None)
    _additional_skip_redact: ClassVar[list[str]] = ["shard", "principal", "peerId", "outcome"]

    @staticmethod
    def _get_schema() -> str:
        return LEASE_SCHEMA


def event_of(row: Row, namespace: str | None = None) -> RunEvent:
    """`namespace` of the job; `omnirelay/<shard>` unless given."""
    kind = row["resource_type"]
    space = namespace or f"omnirelay/{row['shard']}"
    itself = f"{kind}:{row['resource_id']}"
    named = [*_datasets(row["outputs"], space)] or [(space, itself)]
    return RunEvent(
        eventType=_STATES[row["event_type"]],
        eventTime=to_time(row["at_ms"]).isoformat(timespec="milliseconds"),
        run=Run(
            runId=run_id(row["shard"], row["sequence_id"], row["attempt"], row["fence"]),
            facets=_facets(row, space),
        ),
        job=Job(namespace=space, name=kind),
        inputs=[InputDataset(*one) for one in _datasets(row["inputs"], space)],
        outputs=[OutputDataset(*one) for one in named],
        producer=PRODUCER,
    )


def _facets(row: Row, space: str) -> dict[str, RunFacet]:
    parent = parent_run.ParentRunFacet(
        run=parent_run.Run(runId=item_run_id(row["shard"], row["sequence_id"])),
        job=parent_run.Job(namespace=space, name=ITEM_JOB.format(row["resource_type"])),
        producer=PRODUCER,
    )
    lease = LeaseRunFacet(
        shard=row["shard"],
        sequence=row["sequence"],
        sequenceId=row["sequence_id"],
        attempt=row["attempt"],
        fence=row["fence"],
        principal=row["principal"],
        peerId=row["peer_id"],
        waitMs=row["wait_ms"],
        holdMs=row["hold_ms"],
        outcome=_OUTCOMES.get(row["event_type"]),
        disposition=row["disposition"],
        producer=PRODUCER,
    )
    facets: dict[str, RunFacet] = {"parent": parent, LEASE_FACET: lease}
    if row["error_message"] is not None:
        code = row["error_code"]
        message = row["error_message"] if code is None else f"{code}: {row['error_message']}"
        facets["errorMessage"] = error_message_run.ErrorMessageRunFacet(
            message=message, programmingLanguage="unknown", producer=PRODUCER
        )
    return facets


def _datasets(text: str | None, space: str) -> Iterator[tuple[str, str]]:
    """`namespace/name` or a plain name, comma separated; each once, in the order they are named.
    Of an address the scheme and the host are the namespace, as OpenLineage names datasets."""
    parts = (one.strip() for one in (text or "").split(","))
    for one in dict.fromkeys(part for part in parts if part):
        scheme, address, rest = one.partition("://")
        host, slash, path = rest.partition("/") if address else scheme.partition("/")
        if not slash or not path or not host:
            yield space, one
        else:
            yield (f"{scheme}://{host}" if address else host), path


def line_of(event: RunEvent) -> str:
    return Serde.to_json(event)
