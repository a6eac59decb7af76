"""POST /export: a filter as hardware runs it, with its prediction and loss."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from prime_anc.answers import ExportAnswer
from prime_anc.requests.bodies import ExportBody
from prime_anc.tasks.export import FilterFile, export
from service.api import examples
from service.api.openapi import WORK_CODES, described
from service.api.reading import body_of
from service.api.responses import accepted, answered, warning_headers
from service.api.state import FILTERS, TAPS, model_of, run
from service.queue.costs import export_cost

router = APIRouter()


@router.post(
    "/export",
    name="export",
    **described(
        ExportBody,
        answer=ExportAnswer,
        codes=WORK_CODES,
        bodies=examples.EXPORT_BODIES,
        headers=("X-Warnings",),
        binary=(TAPS, "With `file`, that file, in its own media type."),
    ),
)
async def export_filter(request: Request, body: Annotated[Any, body_of(ExportBody, FILTERS)]) -> Response:
    """Realise a filter as hardware runs it. Second-order sections or taps, for its number of coefficients, sample rate
    and number format, are designed by the objective of the updates; their effect is predicted. With `file`, the answer
    is that file."""
    if body.file is None:
        accepted(request)
    resident = await model_of(request, body.model)
    cost, task = export_cost(body, body.target.as_target()), partial(export, body, resident.loaded)
    answer, queue_ms = await run(request, task, cost)
    if isinstance(answer, FilterFile):
        headers = {"Content-Disposition": f'attachment; filename="{answer.name}"'}
        return Response(
            answer.content, media_type=answer.media_type, headers=headers | warning_headers(answer.warnings)
        )
    return answered(request, answer, queue=queue_ms)
