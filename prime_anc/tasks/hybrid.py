"""Design a control filter and a feedback controller together."""

from __future__ import annotations

from dataclasses import asdict, fields, replace

from prime_anc.answers import HybridAnswer, HybridLoop, PlantLoop
from prime_anc.hardware.hybrid import design_hybrid, limited, playback_sections
from prime_anc.requests.bodies import HybridBody
from prime_anc.requests.controllers import wanted
from prime_anc.tasks.controllers import controller_answer
from prime_anc.tasks.design import design_answer
from prime_anc.tasks.models import LoadedModel
from prime_anc.tasks.problem import design_request, joint_problem
from prime_anc.tasks.warnings import controller_warnings


def hybrid(body: HybridBody, loaded: LoadedModel) -> HybridAnswer:
    """Design a controller on the error microphone, y = W x + K e, and the filter in the loop that it closes."""
    requested = design_request(body)
    requested = replace(requested, problem=limited(requested.problem))
    made = design_hybrid(
        requested.problem,
        requested.options,
        loaded.on_core,
        wanted(body.controller),
        stability_only=[joint_problem([item], None, float("inf")).conditions[0] for item in body.stability_only],
        lend_wearing=body.lend_wearing,
        fallback=loaded.fallback,
    )
    playback = playback_sections(requested.problem, made)
    of_filter = design_answer(body, requested, loaded.reference, made.design)
    plants = [PlantLoop(label=label, **asdict(loop)) for label, loop in made.loops]
    assert made.design.loop is not None
    of_both = {
        "controller": controller_answer(
            made.controller,
            body.controller.number_format,
            body.sign,
            needed_format=made.needed_format,
            playback=playback.rows,
        ),
        "loop": HybridLoop(**asdict(made.design.loop), conditions=plants),
        "warnings": [*of_filter.warnings, *controller_warnings(made)],
    }
    return HybridAnswer(**{item.name: getattr(of_filter, item.name) for item in fields(of_filter)} | of_both)
