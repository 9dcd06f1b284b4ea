"""The OpenAPI document of the admin API, generated from its operations and the types of their responses."""

from collections.abc import Iterable, Sequence
from http import HTTPStatus
from typing import Any

import msgspec

from overlane import __version__
from overlane.adminapi.views import ErrorView, View
from overlane.node.admin.operations import Operation

_SCHEMES = {"token": {"type": "http", "scheme": "bearer"}, "user": {"type": "http", "scheme": "basic"}}


def document(operations: Sequence[Operation]) -> dict[str, Any]:
    types = _types(operations)
    schemas, components = msgspec.json.schema_components(types, ref_template="#/components/schemas/{name}")
    by_type = dict(zip(types, schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for operation in operations:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _described(operation, by_type)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Overlane admin API",
            "version": __version__,
            "description": "Admin API of a broker. A token is required if the network file has one.",
        },
        "paths": paths,
        "components": {"schemas": components, "securitySchemes": _SCHEMES},
    }


def _types(operations: Iterable[Operation]) -> list[type[msgspec.Struct]]:
    found: dict[type[msgspec.Struct], None] = {ErrorView: None}
    for operation in operations:
        if operation.takes is not None:
            found[operation.takes] = None
        for answer in operation.answers.values():
            if isinstance(answer, type):
                found[answer] = None
    return list(found)


def _described(operation: Operation, by_type: dict[type[msgspec.Struct], dict[str, Any]]) -> dict[str, Any]:
    answers: dict[int, type[View] | str | None] = dict(operation.answers)
    if not operation.is_open:
        answers[401] = ErrorView
    body = {} if operation.takes is None else {"requestBody": _body(by_type[operation.takes])}
    return {
        **body,
        "operationId": _name(operation),
        "summary": operation.told,
        "parameters": [
            {
                "name": parameter.name,
                "in": parameter.place,
                "description": parameter.told,
                "required": parameter.place == "path",
                "schema": dict(parameter.schema),
            }
            for parameter in operation.parameters
        ],
        "responses": {str(status): _response(status, answer, by_type) for status, answer in sorted(answers.items())},
        "security": _security(operation),
    }


def _security(operation: Operation) -> list[dict[str, list[str]]]:
    if operation.is_open:
        return []
    return [{}, {"token": []}, {"user": []}] if operation.is_for_users else [{}, {"token": []}]


def _response(
    status: int, answer: type[View] | str | None, by_type: dict[type[msgspec.Struct], dict[str, Any]]
) -> dict[str, Any]:
    described: dict[str, Any] = {"description": HTTPStatus(status).phrase}
    if isinstance(answer, str):
        described["content"] = {answer: {"schema": {"type": "string"}}}
    elif answer is not None:
        described["content"] = {"application/json": {"schema": by_type[answer]}}
    return described


def _body(schema: dict[str, Any]) -> dict[str, Any]:
    return {"required": True, "content": {"application/json": {"schema": schema}}}


def _name(operation: Operation) -> str:
    words = [word.strip("{}") for word in operation.path.strip("/").split("/")]
    return "_".join([operation.method.lower(), *words])
