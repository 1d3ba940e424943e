"""What a node can be asked over HTTP, as OpenAPI 3.1: read off the procedures, never written."""

from collections.abc import Iterable, Mapping
from typing import Any  # a JSON document: nothing but dicts, lists, texts and numbers

import msgspec

from omnirelay.model import limits
from omnirelay.rpc import headers
from omnirelay.rpc.procedure import Kind, Procedure
from omnirelay.rpc.status import ErrorBody
from omnirelay.transports.http_events import CONTENT_TYPE

Json = dict[str, Any]

JSON_TYPE = "application/json"
LINES_TYPE = "application/x-ndjson"
_REF = "#/components/schemas/{name}"
_EXAMPLE_DEPTH = 6

_HEADERS = {
    headers.TTL_MS: "How long the caller waits, in milliseconds.",
    headers.SHARD_KEY: "Which shard the call goes to.",
    headers.CALLER: "The name the caller gives itself, for logs.",
    headers.PEER_ID: "The worker that calls, under its proved principal.",
}
_TTL = {"type": "number", "minimum": 0, "maximum": 24 * limits.WAIT_MS_MAX}
_NAME = {"type": "string", "maxLength": limits.NAME_CHARS_MAX}


def document(procedures: Iterable[Procedure], *, title: str, version: str) -> Json:
    served = sorted(
        (one for one in procedures if one.kind is not Kind.DUPLEX), key=lambda one: one.name
    )
    schemas, components = _schemas_of(served)
    return {
        "openapi": "3.1.0",
        "info": {"title": title, "version": version},
        "paths": {path_of(one): _path(one, schemas, components) for one in served},
        "components": {
            "schemas": components,
            "parameters": {
                name: {
                    "name": name,
                    "in": "header",
                    "required": False,
                    "description": text,
                    "schema": _TTL if name == headers.TTL_MS else _NAME,
                }
                for name, text in _HEADERS.items()
            },
            "responses": {
                "Refused": {
                    "description": "Refused; `code` is stable and says why.",
                    "content": {JSON_TYPE: {"schema": schemas[ErrorBody]}},
                }
            },
        },
    }


def path_of(procedure: Procedure) -> str:
    return f"/v1/{procedure.namespace}/{procedure.verb}"


def _schemas_of(procedures: list[Procedure]) -> tuple[dict[Any, Json], dict[str, Json]]:
    kinds = {kind for one in procedures for kind in (one.request, one.response) if kind is not None}
    ordered = [ErrorBody, *sorted(kinds, key=str)]
    found, components = msgspec.json.schema_components(ordered, ref_template=_REF)
    return dict(zip(ordered, found, strict=True)), components


def _path(
    procedure: Procedure, schemas: Mapping[Any, Json], components: Mapping[str, Json]
) -> Json:
    asked = schemas.get(procedure.request, {})
    described: Json = {
        "operationId": f"{procedure.namespace}.{procedure.verb}",
        "tags": [procedure.namespace],
        "parameters": [{"$ref": f"#/components/parameters/{name}"} for name in _HEADERS],
        "responses": _responses(procedure, schemas),
    }
    if procedure.summary:
        described["summary"] = procedure.summary
    kind = LINES_TYPE if procedure.kind is Kind.CLIENT_STREAM else JSON_TYPE
    path: Json = {"post": {**described, "requestBody": {"content": {kind: {"schema": asked}}}}}
    if procedure.kind is Kind.SERVER_STREAM:
        parameters = [*described["parameters"], *_query(asked, components)]
        path["get"] = {
            **described,
            "operationId": f"{described['operationId']}.get",
            "parameters": parameters,
        }
    return path


def _responses(procedure: Procedure, schemas: Mapping[Any, Json]) -> Json:
    answered = {"schema": schemas.get(procedure.response, {})}
    refused = {"default": {"$ref": "#/components/responses/Refused"}}
    if procedure.kind is Kind.ONEWAY:
        return {"202": {"description": "Taken."}, **refused}
    if procedure.kind is Kind.SERVER_STREAM:
        kinds = {CONTENT_TYPE: {"schema": _event(answered["schema"])}, LINES_TYPE: answered}
        return {"200": {"description": "One message after the other.", "content": kinds}, **refused}
    return {
        "200": {"description": "The answer.", "content": {JSON_TYPE: answered}},
        "204": {"description": "There is nothing to answer with."},
        **refused,
    }


def _event(message: Json) -> Json:
    data = {"type": "string", "contentMediaType": JSON_TYPE, "contentSchema": message}
    members = {"id": {"type": "string"}, "event": {"type": "string"}, "data": data}
    return {"type": "object", "properties": members, "required": ["data"]}


def _query(asked: Json, components: Mapping[str, Json]) -> list[Json]:
    shape = _resolved(asked, components)
    return [
        {"name": name, "in": "query", "required": name in shape.get("required", ()), "schema": of}
        for name, of in shape.get("properties", {}).items()
    ]


def _resolved(schema: Json, components: Mapping[str, Json]) -> Json:
    name = schema.get("$ref", "").rpartition("/")[2]
    return components.get(name, schema)


def example(schema: Json, components: Mapping[str, Json], depth: int = 0) -> Any:
    """The smallest body that has all it must have. Where nothing must be there, what has a form of
    its own stands for the rest: a call to enqueue without a payload would show little."""
    schema = _resolved(schema, components)
    if depth > _EXAMPLE_DEPTH:
        return None
    for fixed in ("examples", "enum"):
        if schema.get(fixed):
            return schema[fixed][0]
    if options := schema.get("anyOf") or schema.get("oneOf"):
        return example(options[0], components, depth + 1)
    match schema.get("type"):
        case "object":
            properties = schema.get("properties", {})
            wanted = schema.get("required") or [
                name for name, of in properties.items() if _is_structured(of, components)
            ]
            return {name: example(properties[name], components, depth + 1) for name in wanted}
        case "array":
            return [example(schema["items"], components, depth + 1)] if "items" in schema else []
        case "integer" | "number":
            return schema.get("minimum", 1)
        case "boolean":
            return True
        case "string":
            return "" if schema.get("contentEncoding") == "base64" else "text"
    return None


def _is_structured(schema: Json, components: Mapping[str, Json]) -> bool:
    options = schema.get("anyOf", [schema])
    return any(_resolved(option, components).get("required") for option in options)


def fields(schema: Json, components: Mapping[str, Json]) -> list[str]:
    """Names of the members of a body, with a question mark for those that may be left out."""
    shape = _resolved(schema, components)
    needed = shape.get("required", ())
    return [name if name in needed else f"{name}?" for name in shape.get("properties", {})]
