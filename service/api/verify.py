"""POST /verify: from recordings with the filter off and on to its effect, a diagnosis and a trimmed filter."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from prime_anc.answers import VerificationAnswer
from prime_anc.requests.verification import VerifyBody
from prime_anc.tasks.verify import verify
from service.api import examples
from service.api.openapi import DESIGN_CODES, described
from service.api.reading import body_of
from service.api.responses import accepted, answered
from service.api.state import RECORDINGS, model_of, run
from service.queue.costs import verification_cost

router = APIRouter()


@router.post(
    "/verify",
    **described(VerifyBody, answer=VerificationAnswer, codes=DESIGN_CODES, bodies=examples.VERIFY_BODIES),
)
async def verify_filter(request: Request, body: Annotated[Any, body_of(VerifyBody, RECORDINGS)]) -> Response:
    """Compare levels with the filter off and on per band with the prediction, and gain, delay and polarity of the
    secondary path with the one that was sent; diagnose what is off, and trim the filter for gain and delay where these
    are. All figures are medians over blocks of 0.8 s."""
    accepted(request)
    resident = await model_of(request, body.model)
    task = partial(verify, body, resident.loaded)
    answer, queue_ms = await run(request, task, verification_cost(body))
    return answered(request, answer, queue=queue_ms)
