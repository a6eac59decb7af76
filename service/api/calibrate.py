"""POST /calibrate: from probe recordings to paths and a verdict."""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from time import perf_counter

from starlette.requests import Request
from starlette.responses import Response

from service.admission.admission import Gate
from service.api.front import JSON, TENSORS, Service, Times, Visit, disconnected
from service.api.json_answers import accepted, joined
from service.api.reading import Addresses
from service.calibration.calibration_answer import (
    Judge,
    as_json,
    as_tensors,
    calibrate_recordings,
)
from service.calibration.takes import CalibrationBody
from service.engine.resident_models import refuse_other, split

addresses = Addresses()


@addresses.post("/calibrate")
async def calibrate(request: Request, body: CalibrationBody) -> Response:
    """Estimate paths from recordings and judge them. The answer, in either form, is a valid body for `/refine`."""
    visit: Visit = request.state.visit
    service = visit.service
    media_type = accepted(visit.accept, (JSON, TENSORS))
    visit.decoded()
    marks = [perf_counter()]

    def work() -> tuple[bytes, dict[str, str]]:
        """Return the answer's body, without its times, and its headers."""
        marks.append(perf_counter())
        judged = calibrate_recordings(body, partial(_model, service))
        marks.append(perf_counter())
        answer = as_tensors(judged, body) if media_type == TENSORS else (as_json(judged, body), {})
        marks.append(perf_counter())
        return answer

    content, headers = await service.shares[Gate.CALIBRATION].run(work, visit.due, partial(disconnected, request))
    stages = zip(("queue", "estimate", "encode"), pairwise(marks), strict=True)
    times: Times = {name: 1e3 * (ended - began) for name, (began, ended) in stages}
    times["decode"] = visit.decode_ms
    total_ms = times["total"] = 1e3 * (perf_counter() - visit.began)
    service.metrics.observe_calibration(total_ms)
    if media_type != TENSORS:
        content = joined(content, times)
    return visit.response(content, times, media_type, headers)


def _model(service: Service, reference: str | None) -> Judge:
    """Return the resident model, as for a design, even if the store has a newer version or none; else the store's."""
    models = service.engine.models
    reference, digest = (models.default_model, "") if reference is None else split(reference)
    resident = models.find(reference)
    version = service.store.resolve(reference) if resident is None else resident.version
    refuse_other(digest, version)
    if resident is not None:
        return version, resident.parameters
    return version, service.store.load(str(version)).parameters
