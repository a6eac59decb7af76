"""The table of routes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from starlette.responses import Response

from measurement.calibration import MIN_SAMPLES
from service.admission.admission import Gate
from service.api import (
    answer_types,
    binary_codec,
    calibrate,
    design,
    examples,
    export,
    models,
    open_inference,
    verify,
)
from service.api import open_inference_codec as v2
from service.api.call import Call
from service.api.openapi import (
    DEADLINE,
    JSON_LENGTH,
    LEAVE_ONE_OUT,
    NAME,
    UPDATES,
    VERSION,
    Json,
    binary_form,
    binary_options,
    json_answer,
    json_body,
    with_binary,
)
from service.api.query_options import BINARY_OPTIONS, CALIBRATION_OPTIONS
from service.api.request_types import DesignBody
from service.calibration import take_codec
from service.calibration.takes import CalibrationBody
from service.errors import HttpProblem

_ANY = "malformed-request method-not-allowed too-slow internal-error cross-site "
_CLIENT = "unauthorised over-quota not-acceptable model-unavailable "
_BODY = (
    _ANY + "malformed-json unauthorised unknown-model not-acceptable length-required too-large "
    "unsupported-media-type unsupported-encoding missing-field unknown-field invalid-field out-of-range wrong-rate "
    "unusable-paths overloaded over-quota deadline-passed model-unavailable "
)
_DESIGN = _BODY + "unequal-grids no-finite-filter not-ready "
_BINARY = "bad-magic bad-version bad-flags bad-length bad-checksum "
_UNREAD_BODY = "unauthorised not-acceptable length-required too-large unsupported-encoding "
_V2_MODEL = _ANY + "unauthorised over-quota not-found unknown-model model-unavailable "
_V2_INFER = (
    _V2_MODEL + "malformed-json bad-length length-required too-large unsupported-media-type unsupported-encoding "
    "missing-field unknown-field invalid-field out-of-range unequal-grids unusable-paths no-finite-filter "
    "not-ready overloaded deadline-passed"
)


@dataclass(frozen=True)
class Route:
    """One route.

    answer: the response 200 in the OpenAPI document. problems: codes of its problem documents. more: further
    members of its OpenAPI operation. heard_on: the listeners that serve it, if there is a separate management
    listener.
    """

    method: str
    path: str
    handler: Callable[[Call], Awaitable[Response]]
    gate: Gate
    summary: str
    answer: Json
    problems: str
    more: Json = field(default_factory=dict)
    heard_on: Literal["both", "clients", "management"] = "clients"

    @property
    def methods(self) -> list[str]:
        """HTTP methods: the route's own, and HEAD with GET."""
        return ["GET", "HEAD"] if self.method == "GET" else [self.method]

    @property
    def is_v2(self) -> bool:
        """Whether the route belongs to the Open Inference Protocol."""
        return is_v2(self.path)

    @property
    def operation_id(self) -> str:
        """The OpenAPI operation id: the handler's name, with `v2_` for the Open Inference Protocol."""
        suffix = "_version" if "{version}" in self.path else ""
        return ("v2_" if self.is_v2 else "") + self.handler.__name__ + suffix


def is_v2(path: str) -> bool:
    """Whether a URL path belongs to the Open Inference Protocol."""
    return path == open_inference.PREFIX or path.startswith(open_inference.PREFIX + "/")


def _design_answer() -> Json:
    both = {"items": [examples.DESIGN, HttpProblem("unusable-paths", "what is wrong", "primary").document()]}
    headers = ("X-Model-Digest", "X-Refine-Applied", "X-Predicted-NR-dB", "X-Predicted-AMP-dB", "X-Warnings")
    answer = json_answer(
        (answer_types.Design, answer_types.DesignAnswers),
        "The filter",
        {"design": examples.DESIGN, "both ears": both},
        ("Server-Timing", *headers),
    )
    return with_binary(answer, "2048 little-endian float32; the X- headers come with this form only.")


def _design_more(options: list[Json]) -> Json:
    samples = {"impulse responses": examples.PATHS, "both ears": {"items": [examples.PATHS, examples.PATHS]}}
    samples["two conditions"] = examples.CONDITIONS
    body = json_body(("DesignBody", "ConditionsBody", "DesignItems"), samples)
    body["content"] |= binary_form(binary_codec.__doc__, "impulse responses", examples.PATHS_BINARY)
    return {"parameters": [*options, *binary_options(DesignBody, BINARY_OPTIONS), DEADLINE], "requestBody": body}


def _calibration_more() -> Json:
    body = json_body(("CalibrationBody",), {"two takes, abridged": examples.TAKES})
    note = f"At least {MIN_SAMPLES} samples each."
    body["content"] |= binary_form(take_codec.__doc__, "two takes, abridged", examples.TAKES_BINARY, note)
    parameters = [*binary_options(CalibrationBody, CALIBRATION_OPTIONS), DEADLINE]
    return {"parameters": parameters, "requestBody": body}


def _infer(path: str, parameters: list[Json]) -> Route:
    body = json_body(("InferenceRequest",), {"two spectra": examples.INFERENCE_REQUEST})
    binary, note = examples.INFERENCE_BINARY, examples.INFERENCE_BINARY_NOTE
    body["content"] |= binary_form(v2.__doc__, "two spectra, abridged", binary, note)
    headers = (v2.HEADER_LENGTH, "Server-Timing")
    answer = json_answer((v2.InferenceAnswer,), "The filter", {"a filter": examples.INFERENCE_ANSWER}, headers)
    answer = with_binary(answer, "The JSON object, then 2048 float32")
    more = {"parameters": [*parameters, JSON_LENGTH, DEADLINE], "requestBody": body}
    summary = "Spectra in, filter out (Open Inference Protocol v2)"
    return Route("POST", path, open_inference.infer, Gate.DESIGN, summary, answer, _V2_INFER, more)


def _get(
    path: str,
    handler: Callable[[Call], Awaitable[Response]],
    gate: Gate,
    summary: str,
    kind: Any,
    example: Json,
    problems: str = "",
    heard_on: Literal["both", "clients", "management"] = "clients",
    method: str = "GET",
) -> Route:
    answer = json_answer((kind,), summary, {"an answer": example})
    named = [part for part in (NAME, VERSION) if f"{{{part['name']}}}" in path]
    more = {"parameters": named} if named else {}
    problems = _ANY + problems + ("not-found " if named else "")
    return Route(method, path, handler, gate, summary, answer, problems, more, heard_on)


def _post(
    path: str,
    handler: Callable[[Call], Awaitable[Response]],
    summary: str,
    kind: Any,
    answer_examples: Json,
    bodies: tuple[str, ...],
    body_examples: Json,
    gate: Gate = Gate.DESIGN,
) -> Route:
    """JSON in, JSON out."""
    answer = json_answer((kind,), summary, answer_examples, ("Server-Timing",))
    more = {"parameters": [DEADLINE], "requestBody": json_body(bodies, body_examples)}
    return Route("POST", path, handler, gate, summary, answer, _DESIGN, more)


def _managing(path: str, handler: Any, summary: str, kind: Any, example: Json, problems: str) -> Route:
    return _get(path, handler, Gate.OPERATOR, summary, kind, example, _UNREAD_BODY + problems, "management", "POST")


_METRICS = {"description": "Text exposition", "content": {"text/plain": {"schema": {"type": "string"}}}}
_V2_NAMED, _V2_VERSION = "/v2/models/{name}", "/v2/models/{name}/versions/{version}"

ROUTES = (
    Route(
        "POST",
        "/synthesize",
        design.synthesize,
        Gate.DESIGN,
        "Paths in, filter out (k = 0)",
        _design_answer(),
        _DESIGN + _BINARY,
        _design_more([LEAVE_ONE_OUT]),
    ),
    Route(
        "POST",
        "/refine",
        design.refine,
        Gate.DESIGN,
        "Paths in, filter out, with up to k Gauss-Newton updates",
        _design_answer(),
        _DESIGN + _BINARY,
        _design_more(UPDATES),
    ),
    Route(
        "POST",
        "/calibrate",
        calibrate.calibrate,
        Gate.CALIBRATION,
        "Probe recordings in, paths, coherence and a verdict out",
        with_binary(
            json_answer(
                (answer_types.Calibration,),
                "The paths and the verdict",
                {"noisy takes": examples.CALIBRATION},
                ("Server-Timing", "X-Verdict"),
            ),
            "The paths and their coherence as `/refine` takes them. `X-Verdict`, with this form only, holds "
            "`passed` or the codes of the reasons.",
        ),
        _BODY + _BINARY,
        _calibration_more(),
    ),
    _post(
        "/evaluate",
        design.evaluate,
        "Predict the effect of a filter on these paths",
        answer_types.Evaluation,
        {"figures": examples.EVALUATION},
        ("EvaluateBody",),
        {"a filter": examples.EVALUATE_BODY},
    ),
    _post(
        "/export",
        export.export,
        "A filter as hardware runs it: biquads, fewer taps, fixed point, files",
        answer_types.Export,
        {"two sections": examples.EXPORT},
        ("ExportBody", "ExportConditionsBody"),
        {"six biquads of 24 bits": examples.EXPORT_BODY},
        Gate.EXPORT,
    ),
    _post(
        "/verify",
        verify.verify_filter,
        "What a filter does on the ear, from recordings with it off and on",
        answer_types.Verified,
        {"1 dB too loud": examples.VERIFIED},
        ("VerifyBody",),
        {"two takes, abridged": examples.VERIFY_BODY},
        Gate.VERIFICATION,
    ),
    _get(
        "/models",
        models.list_models,
        Gate.CLIENT,
        "Published models, and which are in memory",
        answer_types.ModelList,
        examples.MODEL_LIST,
        _CLIENT,
        "both",
    ),
    _get(
        "/models/{name}",
        models.show_model,
        Gate.CLIENT,
        "One published version",
        answer_types.ModelDescription,
        examples.MODEL_DESCRIPTION,
        _CLIENT + "unknown-model ",
        "both",
    ),
    _managing(
        "/models/reload",
        models.reload_models,
        "Resolve all names and aliases again and load what they refer to",
        answer_types.ResidentModels,
        examples.RELOADED,
        "model-unavailable ",
    ),
    _managing(
        "/models/{name}/load",
        models.load_model,
        "Resolve a name again, then load, check and use that version",
        answer_types.Model,
        examples.LOADED,
        "unknown-model model-unavailable ",
    ),
    _managing(
        "/models/{name}/unload",
        models.unload_model,
        "Unload a version, or all versions of a name, after running designs",
        answer_types.UnloadedModels,
        examples.UNLOADED,
        "unknown-model default-model ",
    ),
    _get(
        "/health/live",
        models.live,
        Gate.OPEN,
        "Whether the event loop answers, and no restart is needed",
        answer_types.Live,
        examples.LIVE,
        "not-ready ",
        "both",
    ),
    _get(
        "/health/ready",
        models.ready,
        Gate.OPEN,
        "Whether the default model is loaded and checked",
        answer_types.Ready,
        examples.READY,
        "not-ready model-unavailable ",
        "both",
    ),
    Route(
        "GET",
        "/metrics",
        models.metrics,
        Gate.OPEN,
        "Metrics for Prometheus",
        _METRICS,
        _ANY,
        heard_on="management",
    ),
    _get(
        "/v2",
        open_inference.server,
        Gate.OPEN,
        "This server and its extensions",
        v2.InferenceServer,
        examples.INFERENCE_SERVER,
    ),
    _get(
        "/v2/health/live",
        open_inference.live,
        Gate.OPEN,
        "Whether the event loop answers, and no restart is needed",
        v2.InferenceLive,
        examples.INFERENCE_LIVE,
        "not-ready ",
    ),
    _get(
        "/v2/health/ready",
        open_inference.ready,
        Gate.OPEN,
        "Whether the service is ready for designs",
        v2.InferenceLive,
        examples.INFERENCE_LIVE,
        "not-ready model-unavailable ",
    ),
    *(
        _get(
            path,
            open_inference.model,
            Gate.CLIENT,
            "The tensors of a model",
            v2.InferenceModel,
            examples.INFERENCE_MODEL,
            _V2_MODEL,
        )
        for path in (_V2_NAMED, _V2_VERSION)
    ),
    *(
        _get(
            f"{path}/ready",
            open_inference.model_ready,
            Gate.CLIENT,
            "Whether a model is ready for inference",
            v2.InferenceModelReady,
            examples.INFERENCE_MODEL_READY,
            _V2_MODEL + "not-ready ",
        )
        for path in (_V2_NAMED, _V2_VERSION)
    ),
    _infer(f"{_V2_NAMED}/infer", [NAME]),
    _infer(f"{_V2_VERSION}/infer", [NAME, VERSION]),
)
