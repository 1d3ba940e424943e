"""One table from errors to the status of every wire, and back."""

import pytest

from omnirelay.model import errors
from omnirelay.model.errors import OmniRelayError
from omnirelay.rpc.status import (
    GRPC,
    HTTP,
    ErrorBody,
    body_of,
    error_of,
    grpc_status,
    http_status,
    retry_after_s,
)

# CONTRACT §1, line by line.
TABLE: list[tuple[OmniRelayError, str, int, int]] = [
    (errors.InvalidPayload("required", "no"), "INVALID_ARGUMENT", 400, 3),
    (errors.InvalidRestore("token", "no"), "INVALID_ARGUMENT", 400, 3),
    (errors.InvalidArgument("no"), "INVALID_ARGUMENT", 400, 3),
    (errors.InvalidOption("no"), "INVALID_ARGUMENT", 400, 3),
    (errors.Unauthenticated("no"), "UNAUTHENTICATED", 401, 16),
    (errors.PermissionDenied("no"), "PERMISSION_DENIED", 403, 7),
    (errors.NotHolder(1), "PERMISSION_DENIED", 403, 7),
    (errors.UnknownToken(1), "NOT_FOUND", 404, 5),
    (errors.UnknownItem("t", "a"), "NOT_FOUND", 404, 5),
    (errors.StaleToken(1, "late", 42), "FAILED_PRECONDITION", 412, 9),
    (errors.SequenceConflict(1), "ALREADY_EXISTS", 409, 6),
    (errors.TooLarge("no"), "RESOURCE_EXHAUSTED", 413, 8),
    (errors.Backpressure(3, 2, 1), "RESOURCE_EXHAUSTED", 429, 8),
    (errors.QueueFull(1, 1), "RESOURCE_EXHAUSTED", 429, 8),
    (errors.RateLimited("no"), "RESOURCE_EXHAUSTED", 429, 8),
    (errors.Overloaded("no"), "RESOURCE_EXHAUSTED", 429, 8),
    (errors.DiskFull("no"), "RESOURCE_EXHAUSTED", 429, 8),
    (errors.Unimplemented("no"), "UNIMPLEMENTED", 404, 12),
    (errors.Cancelled("no"), "CANCELLED", 499, 1),
    (OmniRelayError("no"), "INTERNAL", 500, 13),
    (errors.Corrupt("s", 1, "bad"), "DATA_LOSS", 500, 15),
    (errors.Unavailable("no"), "UNAVAILABLE", 503, 14),
    (errors.Recovering("no"), "UNAVAILABLE", 503, 14),
    (errors.Closed("no"), "UNAVAILABLE", 503, 14),
    (errors.OutcomeUnknown("no"), "UNAVAILABLE", 503, 14),
    (errors.DeadlineExceeded("no"), "DEADLINE_EXCEEDED", 504, 4),
]


def named(row: object) -> str | None:
    return type(row).__name__ if isinstance(row, OmniRelayError) else None


@pytest.mark.parametrize(("error", "status", "http", "grpc"), TABLE, ids=named)
def test_an_error_has_one_status_on_every_wire(
    error: OmniRelayError, status: str, http: int, grpc: int
) -> None:
    assert (error.status, http_status(error), grpc_status(error)) == (status, http, grpc)
    comes_back = status in ("RESOURCE_EXHAUSTED", "UNAVAILABLE") and http != 413
    assert retry_after_s(error) == (1 if comes_back else None)


@pytest.mark.parametrize("error", [row[0] for row in TABLE], ids=named)
def test_an_error_comes_back_as_what_it_was(error: OmniRelayError) -> None:
    """G33 and G34: neither class, status, code nor facts are lost between two processes."""
    back = error_of(body_of(error))
    # The wire has no code of its own for it: its holder is nobody else's business.
    kind = errors.PermissionDenied if isinstance(error, errors.NotHolder) else type(error)
    assert type(back) is kind
    assert (back.status, back.code, back.message) == (error.status, error.code, error.message)
    assert back.details == error.details
    if isinstance(error, errors.StaleToken):
        assert isinstance(back, errors.StaleToken)
        assert back.current_fence == 42


def test_every_status_stands_in_both_tables() -> None:
    statuses = {error.status for error, *_ in TABLE}
    assert statuses == HTTP.keys() == GRPC.keys()
    assert len(set(GRPC.values())) == len(GRPC)


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (ErrorBody("m", "INVALID_ARGUMENT", "error.from.tomorrow"), errors.InvalidArgument),
        (ErrorBody("m", "RESOURCE_EXHAUSTED", "x"), errors.ResourceExhausted),
        (ErrorBody("m", "UNAVAILABLE", "x"), errors.Unavailable),
        (ErrorBody("m", "INVALID_ARGUMENT", "resourcelease.payload.new"), errors.InvalidPayload),
        (ErrorBody("m", "INVALID_ARGUMENT", "resourcelease.restore.new"), errors.InvalidRestore),
        (ErrorBody("m", "WEATHER", "x"), OmniRelayError),
        (ErrorBody("", "", ""), OmniRelayError),
    ],
)
def test_an_unknown_code_becomes_the_nearest_error(
    body: ErrorBody, kind: type[OmniRelayError]
) -> None:
    back = error_of(body)
    assert type(back) is kind
    assert (back.status, back.code) == (body.status, body.code)
    assert http_status(back) in (*HTTP.values(), 500)


def test_details_of_any_kind_do_no_harm() -> None:
    strange = {"currentFence": "many", "message": "x", "self": 1, "sequence_id": None}
    back = error_of(
        ErrorBody("m", "FAILED_PRECONDITION", "error.taskqueue.lease_inactive", strange)
    )
    assert isinstance(back, errors.StaleToken)
    assert back.current_fence is None
    assert back.details == strange


def test_no_error_of_ours_is_missing_from_the_tables() -> None:
    kinds = [OmniRelayError]
    for kind in kinds:
        kinds += kind.__subclasses__()
    assert {kind.status for kind in kinds} <= HTTP.keys()
