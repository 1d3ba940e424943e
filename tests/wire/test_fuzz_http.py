"""Every verb of a real node over HTTP, called with all that its OpenAPI description allows and with
much that it does not: a good answer or a refusal in our words, never a fault."""

from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis.core.transport import Response
from schemathesis.generation import GenerationMode
from schemathesis.specs.openapi.checks import response_schema_conformance

from omnirelay.rpc.status import HTTP
from omnirelay.testing import figures
from tests.wire.node_apart import NodeApart

VERBS = (
    "enqueue enqueueBatch lease leaseBatch heartbeat heartbeatBatch complete completeBatch "
    "completeAndLease fail release drain restore stats inspect deadLetters redrive purge position "
    "events"
)
EXAMPLES = 18
WAITING = ("lease", "leaseBatch", "events")
TTL_MS = "40"
"""For those, which would wait for work, or for ever."""


@pytest.fixture(scope="module")
def schema() -> Iterator[Any]:  # Any: what schemathesis makes of the description
    with NodeApart(http="127.0.0.1:0") as node:
        yield schemathesis.openapi.from_url(f"{node.urls['http']}/openapi.json")


def test_every_verb_that_is_described_is_tried(schema: Any) -> None:
    described = {path.rpartition("/")[2] for path in schema}
    assert described == set(VERBS.split())


def is_in_our_words(response: Response) -> bool:
    if response.status_code < 400:
        return True
    said = response.json()
    matches = HTTP[said["status"]] == response.status_code or response.status_code in _ITS_OWN
    return bool(said["message"]) and bool(said["code"]) and matches


_ITS_OWN = (405, 408, 413, 415, 431)
"""Where HTTP has a closer status for what is one of ours."""


@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE])
@pytest.mark.parametrize("verb", VERBS.split())
def test_a_verb_answers_or_refuses_in_our_words(
    schema: Any, verb: str, mode: GenerationMode
) -> None:
    operation = schema[f"/v1/resourcelease/{verb}"]["POST"]
    seen: list[int] = []

    @settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck))
    @given(operation.as_strategy(generation_mode=mode))
    def call(case: schemathesis.Case[Any]) -> None:
        if verb in WAITING:
            case.headers["rpc-ttl-ms"] = TTL_MS
        response = case.call(timeout=8)
        seen.append(response.status_code)
        case.validate_response(response, checks=[response_schema_conformance])
        assert response.status_code < 500 or response.status_code in (503, 504), response.text
        assert is_in_our_words(response), response.text

    call()
    faults = sum(status >= 500 and status not in (503, 504) for status in seen)
    figures.record("inputs", tried=len(seen), server_errors=faults)
