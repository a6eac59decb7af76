"""POST /synthesize, /refine and /evaluate."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from time import perf_counter

import numpy as np
from starlette.requests import Request
from starlette.responses import Response

from model_store.store import ModelVersion
from prime_anc.method.errors import SynthesisError, answer_or_raise
from prime_anc.method.types import (
    Complex64,
    Design,
    Evaluation,
    Float32,
    Problem,
)
from service.api import json_answers as answers
from service.api.controllers import running_document
from service.api.front import JSON, TAPS, Visit, disconnected
from service.api.json_answers import Answered, accepted
from service.api.problem import DesignRequest, check_effect, design_request, filter_problem, loop_in, sent_paths
from service.api.reading import Addresses
from service.api.request_types import (
    DesignBody,
    EvaluateBody,
    SynthesisBody,
)
from service.api.warnings import collect_warnings, negated_filter, warning_headers

# The JSON answer, or only the taps.
_ANSWERS = (JSON, TAPS)

addresses = Addresses()


async def designed(request: Request, requested: DesignRequest) -> Answered:
    """Make one design with the engine."""
    visit: Visit = request.state.visit
    model, (design,) = await visit.service.engine.design(
        requested.model, requested.options, [requested.problem], visit.due, partial(disconnected, request)
    )
    if isinstance(design, SynthesisError):
        raise design
    return answered(requested, model, design)


def answered(requested: DesignRequest, model: ModelVersion, design: Design) -> Answered:
    """Add the request's sign and the warnings to the engine's design."""
    warnings = collect_warnings(
        requested.sent,
        requested.problem,
        design.prediction,
        design.replaced_because,
        design.ceiling_cost_db,
        design.implausible,
        design.loop,
    )
    taps = -design.taps if requested.sign == "plus" else design.taps
    posed = requested.problem
    return Answered(
        *(model, design, requested.sign, taps, warnings),
        *(posed.latency_samples, posed.max_gain_db, posed.max_louder_db, posed.reference_psd is not None),
    )


@addresses.post("/synthesize")
async def synthesize(request: Request, body: SynthesisBody) -> Response:
    """Design a filter without updates (k = 0)."""
    return await _design(request, body)


@addresses.post("/refine")
async def refine(request: Request, body: DesignBody) -> Response:
    """Design a filter with up to k Gauss-Newton updates. An answer of `/calibrate` is a valid body."""
    return await _design(request, body)


async def _design(request: Request, body: SynthesisBody | DesignBody) -> Response:
    visit: Visit = request.state.visit
    visit.design_method = body.method
    media_type = accepted(visit.accept, _ANSWERS)
    requested = design_request(body)
    visit.decoded()
    made = await designed(request, requested)
    if media_type == TAPS:
        return _taps_alone(visit, made)
    document = answers.design_document(made) | running_document(body)
    content, times = answers.with_times(document, made.design.times_ms, visit)
    return visit.response(content, times, designs=[(made.model, made.design)])


def _taps_alone(visit: Visit, made: Answered) -> Response:
    """Answer with the taps, and headers with some fields of the JSON answer."""
    began = perf_counter()
    design, prediction = made.design, made.design.prediction
    content = made.taps.astype("<f4", copy=False).tobytes()
    headers = {
        "X-Model-Digest": made.model.digest,
        "X-Refine-Applied": str(design.refinement.applied),
        "X-Predicted-NR-dB": f"{prediction.mean_noise_reduction_db:.4f}",
        "X-Predicted-AMP-dB": f"{prediction.amplification_db:.4f}",
    }
    headers |= warning_headers(made.warnings)
    times = visit.spent_ms(design.times_ms, began)
    return visit.response(content, times, TAPS, headers, [(made.model, design)])


async def evaluated(
    request: Request,
    model: str | None,
    problems: Sequence[Problem],
    taps: Sequence[Float32 | Complex64],
    *,
    is_continued: bool = False,
) -> list[Evaluation]:
    """Call `Engine.evaluate`; raise the first ear's SynthesisError, if any."""
    visit: Visit = request.state.visit
    found = await visit.service.engine.evaluate(
        model, problems, taps, visit.due, partial(disconnected, request), is_continued=is_continued
    )
    return [answer_or_raise(item) for item in found]


@addresses.post("/evaluate")
async def evaluate(request: Request, body: EvaluateBody) -> Response:
    """Predict the effect of a filter on these paths."""
    visit: Visit = request.state.visit
    accepted(visit.accept)
    conditions = body.all_conditions
    problem = filter_problem(body)
    taps = -body.fir if body.sign == "plus" else body.fir
    check_effect(taps, problem, may_be_none=True)
    visit.decoded()
    (answer,) = await evaluated(request, body.model, [problem], [taps])
    implausible = answer.implausible
    if answer.prediction.mean_noise_reduction_db < 0:
        (other,) = await evaluated(request, body.model, [problem], [np.negative(taps)])
        implausible += negated_filter(other.prediction)
    loop = loop_in(problem, taps)
    warnings = collect_warnings(
        sent_paths(conditions), problem, answer.prediction, implausible=implausible, loop=loop
    )
    predicted = answers.document(answers.prediction_answer(answer.prediction, problem.reference_psd is not None))
    document = {"prediction": predicted, "warnings": warnings}
    document |= answers.loop_document(loop)
    content, times = answers.with_times(document, answer.times_ms, visit)
    return visit.response(content, times, designs=[])
