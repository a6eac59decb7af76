"""POST /synthesize, /refine and /evaluate."""

from __future__ import annotations

from functools import partial
from time import perf_counter
from typing import Annotated, Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from prime_anc.answers import DesignAnswer, EvaluationAnswer
from prime_anc.requests.bodies import DesignBody, EvaluateBody, SynthesisBody
from prime_anc.tasks.design import design_answer, design_warnings, evaluate
from prime_anc.tasks.predictions import timings
from prime_anc.tasks.problem import design_request, signed
from service.api import examples
from service.api.openapi import DESIGN_CODES, WORK_CODES, described
from service.api.reading import body_of
from service.api.responses import accepted, answered, completed, timed, warning_headers
from service.api.state import DESIGNS, JSON, TAPS, disconnected, model_of, run, service_of, state_of
from service.queue.costs import evaluation_cost

router = APIRouter()
_DESIGNS: Any = {
    "answer": DesignAnswer,
    "codes": DESIGN_CODES,
    "bodies": examples.DESIGN_BODIES,
    "headers": ("X-Model-Digest", "X-Refine-Applied", "X-Predicted-NR-dB", "X-Predicted-AMP-dB", "X-Warnings"),
    "binary": (TAPS, "2048 little-endian float32; the X- headers come with this form only."),
}


@router.post("/synthesize", **described(SynthesisBody, **_DESIGNS))
async def synthesize(request: Request, body: Annotated[Any, body_of(SynthesisBody, DESIGNS)]) -> Response:
    """Design a filter without updates (k = 0)."""
    return await _design(request, body)


@router.post("/refine", **described(DesignBody, **_DESIGNS))
async def refine(request: Request, body: Annotated[Any, body_of(DesignBody, DESIGNS)]) -> Response:
    """Design a filter with up to k Gauss-Newton updates. An answer of `/calibrate` is a valid body."""
    return await _design(request, body)


async def _design(request: Request, body: Any) -> Response:
    media_type = accepted(request, (JSON, TAPS))
    service, state = service_of(request), state_of(request)
    state.design_method = body.method
    requested, resident = design_request(body), await model_of(request, body.model)
    watch = partial(disconnected, request)
    design = await service.engine.design(resident, requested, state.key, state.due, watch)
    service.metrics.observe_design(resident, design)
    if media_type == JSON:
        answer = design_answer(body, requested, resident.reference, design)
        return answered(request, answer, service.metrics.observe)
    began = perf_counter()
    warnings, taps = design_warnings(requested, design), signed(design.taps, requested.sign)
    times = completed(request, timings(design.times_ms).__dict__, began)
    service.metrics.observe(times)
    headers = {
        "X-Model-Digest": resident.version.digest,
        "X-Refine-Applied": str(design.refinement.applied),
        "X-Predicted-NR-dB": f"{design.prediction.mean_noise_reduction_db:.4f}",
        "X-Predicted-AMP-dB": f"{design.prediction.amplification_db:.4f}",
    }
    return timed(taps.astype("<f4").tobytes(), times, TAPS, headers | warning_headers(warnings))


@router.post(
    "/evaluate",
    name="evaluate",
    **described(EvaluateBody, answer=EvaluationAnswer, codes=WORK_CODES, bodies=examples.EVALUATE_BODIES),
)
async def evaluate_filter(request: Request, body: Annotated[Any, body_of(EvaluateBody, DESIGNS)]) -> Response:
    """Predict the effect of a filter on these paths."""
    accepted(request)
    resident = await model_of(request, body.model)
    task = partial(evaluate, body, resident.loaded)
    answer, queue_ms = await run(request, task, evaluation_cost(body))
    return answered(request, answer, service_of(request).metrics.observe, queue=queue_ms)
