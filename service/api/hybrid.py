"""POST /hybrid: a control filter and a feedback controller, designed together."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from prime_anc.answers import HybridAnswer
from prime_anc.requests.bodies import HybridBody
from prime_anc.tasks.hybrid import hybrid
from service.api import examples
from service.api.openapi import DESIGN_CODES, described
from service.api.reading import body_of
from service.api.responses import accepted, answered
from service.api.state import HYBRIDS, model_of, run, service_of, state_of
from service.queue.costs import hybrid_cost

router = APIRouter()


@router.post(
    "/hybrid",
    name="hybrid",
    **described(HybridBody, answer=HybridAnswer, codes=DESIGN_CODES, bodies=examples.HYBRID_BODIES),
)
async def design_hybrid(request: Request, body: Annotated[Any, body_of(HybridBody, HYBRIDS)]) -> Response:
    """Design a controller on the error microphone, y = W x + K e, and the filter in the loop that it closes. The loop
    is stable, with all margins, in all conditions, as the earphone is worn otherwise, and at -3 to 3 dB (-6 to 6
    with the warning `plant_unknown`)."""
    accepted(request)
    state_of(request).design_method = body.method
    resident = await model_of(request, body.model)
    n_lent = len(resident.parameters.wearing) if body.lend_wearing else 0
    cost, task = hybrid_cost(body, n_lent), partial(hybrid, body, resident.loaded)
    answer, queue_ms = await run(request, task, cost)
    return answered(request, answer, service_of(request).metrics.observe, queue=queue_ms)
