"""POST /calibrate: from probe recordings to paths and a verdict."""

from __future__ import annotations

from functools import partial
from time import perf_counter
from typing import Annotated, Any

import orjson
import safetensors.numpy
from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from prime_anc.answers import CalibrationAnswer
from prime_anc.requests.takes import CalibrationBody
from prime_anc.tasks.calibrate import calibrate
from service.api import examples
from service.api.openapi import WORK_CODES, described
from service.api.reading import body_of
from service.api.responses import accepted, answered, completed, timed
from service.api.state import JSON, RECORDINGS, TENSORS, model_of, run, service_of
from service.queue.costs import calibration_cost

router = APIRouter()


@router.post(
    "/calibrate",
    name="calibrate",
    **described(
        CalibrationBody,
        answer=CalibrationAnswer,
        codes=WORK_CODES,
        bodies=examples.CALIBRATION_BODIES,
        headers=("X-Verdict",),
        binary=(
            TENSORS,
            "The paths and their coherence as `/refine` takes them. `X-Verdict`, with this form only, holds `passed` "
            "or the codes of the reasons.",
        ),
    ),
)
async def estimate_paths(
    request: Request,
    body: Annotated[Any, body_of(CalibrationBody, RECORDINGS)],
) -> Response:
    """Estimate paths from recordings and judge them. The answer, in either form, is a valid body for `/refine`."""
    media_type, metrics = accepted(request, (JSON, TENSORS)), service_of(request).metrics
    resident = await model_of(request, body.model)
    task = partial(calibrate, body, resident.reference, resident.parameters)
    answer, queue_ms = await run(request, task, calibration_cost(body))
    if media_type == JSON:
        return answered(request, answer, metrics.observe_calibration, queue=queue_ms)
    began = perf_counter()
    content = _tensors(answer)
    times = completed(request, answer.timings_ms.__dict__ | {"queue": queue_ms}, began)
    metrics.observe_calibration(times)
    reasons = ", ".join(reason.code for reason in answer.verdict.reasons)
    return timed(content, times, TENSORS, {"X-Verdict": reasons or "passed"})


def _tensors(answer: CalibrationAnswer) -> bytes:
    """Encode what `/refine` takes of a calibration as safetensors."""
    arrays = {
        "primary": answer.primary.impulse_response,
        "secondary": answer.secondary.impulse_response,
        "coherence": answer.coherence,
        "uncertainty": answer.uncertainty.reshape(2, -1),
    }
    if answer.feedback is not None:
        arrays["feedback"] = answer.feedback.impulse_response
    model = {} if answer.model is None else {"model": answer.model}
    request = {"sample_rate": answer.sample_rate, "sign": answer.sign, **model}
    return safetensors.numpy.save(arrays, {"request": orjson.dumps(request).decode()})
