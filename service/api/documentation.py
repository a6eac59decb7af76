"""Details of operations in the OpenAPI document beyond their types: examples, problems, options, the binary form."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from service.admission.admission import DEADLINE_HEADER
from service.api import reading
from service.api.answer_types import ProblemDocument
from service.api.front import TENSORS
from service.api.options import CURVES, option_fields
from service.errors import PROBLEM_MEDIA_TYPE, PROBLEMS, RETRY_AFTER_S, HttpProblem
from service.settings import MAX_DEADLINE_MS, MIN_DEADLINE_MS

Json = dict[str, Any]
Responses = dict[int | str, Json]

ANY_CODES = "malformed-request method-not-allowed too-slow internal-error cross-site "
CLIENT_CODES = ANY_CODES + "unauthorised not-acceptable model-unavailable "
BODY_CODES = (
    ANY_CODES
    + "malformed-json malformed-tensors unauthorised unknown-model not-acceptable length-required too-large "
    "unsupported-media-type unsupported-encoding missing-field unknown-field invalid-field out-of-range wrong-rate "
    "unequal-grids unusable-paths overloaded deadline-passed model-unavailable not-ready "
)
DESIGN_CODES = BODY_CODES + "no-finite-filter "
OPERATOR_CODES = ANY_CODES + "unauthorised not-acceptable length-required too-large unsupported-encoding "

DEADLINE: Json = {
    "name": DEADLINE_HEADER,
    "in": "header",
    "required": False,
    "schema": {"type": "number", "minimum": MIN_DEADLINE_MS, "maximum": MAX_DEADLINE_MS},
    "description": "Deadline in milliseconds from receipt. If there is not enough time for all updates, fewer are "
    "applied (`refinement.stopped` is `deadline`); if there is not enough for any filter, the answer is 503 at once.",
}


def described(
    summary: str,
    codes: str,
    example: Json,
    body: type[BaseModel] | None = None,
    headers: tuple[str, ...] = (),
    binary_answer: tuple[str, str] | None = None,
) -> Json:
    """Return arguments of a route for the document.

    Parameters
    ----------
    summary
        Summary of the operation.
    codes
        Codes of its problems, separated by spaces.
    example
        Example of its answer.
    body
        Type of its body, which may also be sent as tensors, and whose options may be query parameters.
    headers
        Headers of its answer.
    binary_answer
        Media type and description of another form of the answer.
    """
    content: Json = {"application/json": {"examples": {"an answer": {"value": example}}}}
    if binary_answer is not None:
        media_type, text = binary_answer
        content[media_type] = {"schema": {"type": "string", "format": "binary", "description": text}}
    answer = {
        "description": summary,
        "headers": {name: {"schema": {"type": "string"}} for name in headers},
        "content": content,
    }
    arguments: Json = {"summary": summary, "responses": {200: answer, **problem_responses(codes)}}
    if body is not None:
        arguments["openapi_extra"] = {
            "parameters": [*option_parameters(body), DEADLINE],
            "requestBody": {"content": {TENSORS: _TENSORS}},
        }
    return arguments


_TENSORS: Json = {"schema": {"type": "string", "format": "binary", "description": reading.__doc__}}


def option_parameters(body: type[BaseModel]) -> list[Json]:
    """Return a body's options as query parameters, without defaults: the body's value applies, if any."""
    properties = body.model_json_schema()["properties"]
    return [
        {
            "name": name,
            "in": "query",
            "required": False,
            "schema": _of_query(name, properties[name]),
            "description": f"As the field of the body. {properties[name].get('description', '')}",
        }
        for name in option_fields(body)
    ]


def _of_query(name: str, schema: Json) -> Json:
    """Return the schema of a query parameter; a curve is text."""
    if name in CURVES:
        return {"type": "string", "description": CURVES[name].text_form.capitalize()}
    return {key: value for key, value in schema.items() if key not in ("description", "title", "default")}


def problem_responses(codes: str, is_v2: bool = False, model: Any = ProblemDocument) -> Responses:
    """Return responses by status, with an example per code.

    Parameters
    ----------
    codes
        Codes of problems, separated by spaces.
    is_v2
        Whether they have the Open Inference Protocol's form.
    model
        Type of the document.
    """
    responses: Responses = {}
    for code in dict.fromkeys(codes.split()):
        status, title = PROBLEMS[code]
        media_type = "application/json" if is_v2 else PROBLEM_MEDIA_TYPE
        response = responses.setdefault(
            status,
            {
                "description": title,
                "headers": {"Server-Timing": {"schema": {"type": "string"}}},
                "content": {
                    media_type: {"schema": {"$ref": f"#/components/schemas/{model.__name__}"}, "examples": {}}
                },
            },
        )
        if response["description"] != title:
            response["description"] += "; " + title[0].lower() + title[1:]
        detail = "what is wrong and what to do"
        example = {"error": f"{code}: {detail}"} if is_v2 else HttpProblem(code, detail).document()
        response["content"][media_type]["examples"][code] = {"value": example}
        if code in RETRY_AFTER_S:
            response["headers"]["Retry-After"] = {"schema": {"type": "integer"}, "description": "Seconds"}
        if status in (401, 405):
            response["headers"]["WWW-Authenticate" if status == 401 else "Allow"] = {"schema": {"type": "string"}}
    return responses
