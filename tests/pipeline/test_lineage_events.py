"""Rows to OpenLineage events: what the official client takes, with every name where it belongs."""

import json
from importlib.resources import files
from typing import Any
from uuid import UUID

import jsonschema_rs
import pytest
from openlineage.client.event_v2 import RunEvent, RunState

from omnirelay.pipeline.lineage_events import LEASE_FACET, LEASE_SCHEMA, event_of, line_of
from omnirelay.pipeline.lineage_ids import item_run_id, run_id
from tests.spark.report_rows import HOSTILE

Row = dict[str, Any]  # Any: columns of mixed types
ROW: Row = {
    "shard": "s",
    "sequence": 12,
    "at_ms": 1_760_000_000_123,
    "event_type": "LeaseGranted",
    "sequence_id": 7,
    "attempt": 2,
    "fence": 12,
    "peer_id": "w1",
    "principal": "anonymous",
    "disposition": None,
    "error_message": None,
    "error_code": None,
    "resource_type": "table",
    "resource_id": "orders",
    "inputs": "",
    "outputs": "",
    "wait_ms": 50,
    "hold_ms": None,
}


def told(**changes: object) -> Any:
    """Any: the JSON of one event."""
    return json.loads(line_of(event_of(ROW | changes)))


def test_a_grant_starts_a_run_of_its_attempt_below_its_item() -> None:
    said = told()
    assert said["eventType"] == "START"
    assert said["eventTime"] == "2025-10-09T08:53:20.123+00:00"
    assert said["run"]["runId"] == run_id("s", 7, 2, 12)
    assert said["job"] == {"namespace": "omnirelay/s", "name": "table", "facets": {}}
    parent = said["run"]["facets"]["parent"]
    assert parent["run"]["runId"] == item_run_id("s", 7)
    assert parent["job"]["name"] == "table.item"
    assert said["schemaURL"].endswith("#/$defs/RunEvent")


@pytest.mark.parametrize(
    ("event_type", "state", "outcome"),
    [
        ("Completed", RunState.COMPLETE, "completed"),
        ("Failed", RunState.FAIL, "failed"),
        ("Expired", RunState.ABORT, "expired"),
        ("Released", RunState.ABORT, "released"),
        ("DrainSnapshot", RunState.ABORT, "drained"),
    ],
)
def test_every_end_has_its_state(event_type: str, state: RunState, outcome: str) -> None:
    said = told(event_type=event_type, hold_ms=9, wait_ms=None)
    assert said["eventType"] == state.value
    lease = said["run"]["facets"][LEASE_FACET]
    assert (lease["outcome"], lease["holdMs"], "waitMs" in lease) == (outcome, 9, False)


def test_the_facet_of_the_lease_keeps_its_own_schema() -> None:
    schema = json.loads(
        files("omnirelay.pipeline").joinpath("assets/omniRelay_lease.json").read_bytes()
    )
    for changes in ({}, {"event_type": "Failed", "hold_ms": 1, "disposition": "requeued"}):
        facets = told(**changes)["run"]["facets"]
        jsonschema_rs.validate(schema, {LEASE_FACET: facets[LEASE_FACET]})
        assert f"{schema['$id']}#/$defs/LeaseRunFacet" == LEASE_SCHEMA
        assert facets[LEASE_FACET]["_schemaURL"] == LEASE_SCHEMA
        assert facets[LEASE_FACET].keys() <= schema["$defs"]["LeaseRunFacet"]["properties"].keys()


def test_an_error_is_told_with_its_code() -> None:
    said = told(event_type="Failed", error_message="disk full", error_code="E5")
    assert said["run"]["facets"]["errorMessage"]["message"] == "E5: disk full"


# -- datasets -----------------------------------------------------------------------------------


def datasets(names: str) -> list[tuple[str, str]]:
    return [(one["namespace"], one["name"]) for one in told(inputs=names)["inputs"]]


@pytest.mark.parametrize(
    ("names", "found"),
    [
        ("orders", [("omnirelay/s", "orders")]),
        ("lake/orders", [("lake", "orders")]),
        ("lake/raw/orders", [("lake", "raw/orders")]),
        ("s3://bucket/raw/orders", [("s3://bucket", "raw/orders")]),
        (" a , lake/b ,, a", [("omnirelay/s", "a"), ("lake", "b")]),
        ("/rooted", [("omnirelay/s", "/rooted")]),
        ("trailing/", [("omnirelay/s", "trailing/")]),
        ("s3://bucket", [("omnirelay/s", "s3://bucket")]),
        ("", []),
        (" , ", []),
    ],
)
def test_names_of_datasets_are_parted_as_openlineage_parts_them(
    names: str, found: list[tuple[str, str]]
) -> None:
    assert datasets(names) == found


def test_the_resource_is_the_output_unless_others_are_named() -> None:
    assert told()["outputs"][0] == {
        "namespace": "omnirelay/s",
        "name": "table:orders",
        "facets": {},
        "outputFacets": {},
    }
    assert [one["name"] for one in told(outputs="a,b")["outputs"]] == ["a", "b"]


def test_a_namespace_may_be_given() -> None:
    said = json.loads(line_of(event_of(ROW, "prod")))
    assert (said["job"]["namespace"], said["outputs"][0]["namespace"]) == ("prod", "prod")


@pytest.mark.parametrize("name", HOSTILE)
def test_no_name_breaks_a_line(name: str) -> None:
    event = event_of(ROW | {"resource_id": name, "principal": name, "inputs": name})
    assert isinstance(event, RunEvent)
    UUID(event.run.runId)
    line = line_of(event)
    assert "\n" not in line
    assert json.loads(line)["run"]["facets"][LEASE_FACET]["principal"] == name
