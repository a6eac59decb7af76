"""POST /hybrid: a control filter and a feedback controller, designed together."""

from __future__ import annotations

from dataclasses import asdict, replace
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from prime_anc.hardware.hybrid import HybridDesign, design_hybrid, limited, playback_sections
from prime_anc.method.sections import Sections
from prime_anc.method.types import Model
from service.admission.admission import Gate
from service.api.controllers import controller_document, playback_document, wanted
from service.api.design import answered
from service.api.front import Visit, disconnected
from service.api.json_answers import accepted, design_document, with_times
from service.api.problem import DesignRequest, design_request, joint_problem
from service.api.reading import Addresses
from service.api.request_types import HybridBody
from service.api.warnings import controller_warnings
from service.engine.work import HybridWork, work_of

addresses = Addresses()


@addresses.post("/hybrid")
async def hybrid(request: Request, body: HybridBody) -> Response:
    """Design a controller on the error microphone, y = W x + K e, and the filter in the loop that it closes. The loop
    is stable, with all margins, in all conditions, as the earphone is worn otherwise, and at -3 to 3 dB (-6 to 6
    with the warning `plant_unknown`)."""
    visit: Visit = request.state.visit
    visit.design_method = body.method
    accepted(visit.accept)
    requested = design_request(body)
    requested = replace(requested, problem=limited(requested.problem))
    wishes = wanted(body.controller)
    others = [joint_problem([item], None, float("inf")).conditions[0] for item in body.stability_only]
    watch = partial(disconnected, request)
    resident = await visit.service.engine.models.model(body.model, visit.due, watch)
    n_lent = len(resident.parameters.wearing) if body.lend_wearing else 0
    work = HybridWork(
        requested.options, wishes.n_sections, len(requested.problem.conditions) + len(others) + n_lent
    )
    visit.decoded()

    def run() -> tuple[HybridDesign, Sections]:
        # The core, since other backends belong to their threads.
        model = resident.model
        on_core = model if model.backend is model.core else Model(model.parameters, model.core)
        made = design_hybrid(
            requested.problem,
            requested.options,
            on_core,
            wishes,
            stability_only=others,
            lend_wearing=body.lend_wearing,
            fallback=visit.service.engine.models.fallback,
        )
        return made, playback_sections(requested.problem, made)

    made, playback = await visit.service.shares[Gate.HYBRID].run(run, visit.due, watch, work_of(work))
    design = made.design
    found = answered(requested, resident.version, design)
    found = replace(found, warnings=[*found.warnings, *controller_warnings(made)])
    document = design_document(found) | _of_both(made, playback, requested, wishes.number_format)
    content, times = with_times(document, design.times_ms, visit)
    return visit.response(content, times, designs=[(resident.version, design)])


def _of_both(
    made: HybridDesign, playback: Sections, requested: DesignRequest, number_format: str
) -> dict[str, Any]:
    """Return what the answer has besides that of a filter."""
    assert made.design.loop is not None
    loops = [{"label": label, **asdict(loop)} for label, loop in made.loops]
    controller = controller_document(made.controller, number_format, requested.sign, made.needed_format)
    return {
        "controller": controller | playback_document(playback.rows, playback.sample_rate_hz),
        "loop": asdict(made.design.loop) | {"conditions": loops},
    }
