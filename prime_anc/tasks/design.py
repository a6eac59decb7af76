"""Design a control filter, and predict the effect of a given one."""

from __future__ import annotations

from dataclasses import fields
from time import perf_counter
from typing import Any

import numpy as np

from prime_anc.answers import DesignAnswer, EvaluationAnswer, ModelReference, RefinementAnswer, Warning_
from prime_anc.method.conventions import SAMPLE_RATE_HZ
from prime_anc.method.curve import Curve
from prime_anc.method.design import design_all, implausible, predict_all
from prime_anc.method.errors import answer_or_raise
from prime_anc.method.support.findings import Finding
from prime_anc.method.types import Complex64, Design, Float32, Model, Prediction, Problem
from prime_anc.options import DEFAULT_MAX_GAIN_DB, ObjectiveFields
from prime_anc.requests.bodies import EvaluateBody, SynthesisBody
from prime_anc.tasks.controllers import running_answer
from prime_anc.tasks.models import LoadedModel
from prime_anc.tasks.predictions import loop_answer, prediction_answer, timings
from prime_anc.tasks.problem import (
    DesignRequest,
    check_effect,
    design_request,
    filter_problem,
    loop_in,
    sent_paths,
    signed,
)
from prime_anc.tasks.warnings import collect_warnings, negated_filter


def design(body: SynthesisBody, loaded: LoadedModel) -> DesignAnswer:
    """Design one filter, without a queue."""
    requested = design_request(body)
    (made,) = design_all([requested.problem], requested.options, loaded.model, loaded.fallback)
    return design_answer(body, requested, loaded.reference, answer_or_raise(made))


def design_answer(
    body: SynthesisBody, requested: DesignRequest, reference: ModelReference, made: Design
) -> DesignAnswer:
    """Return the answer for a design.

    Parameters
    ----------
    body, requested
        What was asked for.
    reference
        Model that made the design.
    made
        The design, for e = d - s * w * x.
    """
    problem = requested.problem
    names = {field.name for field in fields(DesignAnswer)}.intersection(ObjectiveFields.__dataclass_fields__)
    chosen: dict[str, Any] = {name: getattr(problem, name) for name in names}
    if chosen["max_gain_db"] == DEFAULT_MAX_GAIN_DB:
        chosen["max_gain_db"] = None
    chosen = {name: item.document() if isinstance(item, Curve) else item for name, item in chosen.items()}
    record = made.refinement
    return DesignAnswer(
        fir=signed(made.taps, body.sign),
        sample_rate=SAMPLE_RATE_HZ,
        sign=body.sign,
        method=made.method,
        model=reference,
        refinement=RefinementAnswer(
            requested=made.n_requested,
            applied=record.applied,
            stopped=record.stopped,  # type: ignore[arg-type]
            objective=record.objective,
            step_scale=record.step_scale,
            pcg_residual=record.pcg_residual,
        ),
        prediction=prediction_answer(made.prediction, problem.reference_psd is not None),
        latency_samples=problem.latency_samples or None,
        **chosen,
        loop=loop_answer(made.loop),
        controller=running_answer(body),
        warnings=design_warnings(requested, made),
        timings_ms=timings(made.times_ms),
    )


def design_warnings(requested: DesignRequest, made: Design) -> list[Warning_]:
    """Collect the warnings on a design."""
    return collect_warnings(
        requested.sent,
        requested.problem,
        made.prediction,
        made.replaced_because,
        made.ceiling_cost_db,
        made.implausible,
        made.loop,
    )


def evaluate(body: EvaluateBody, loaded: LoadedModel) -> EvaluationAnswer:
    """Predict the effect of a filter on these paths."""
    began = perf_counter()
    problem = filter_problem(body)
    taps = signed(body.fir, body.sign)
    check_effect(taps, problem, may_be_none=True)
    prediction = predicted(problem, taps, loaded.on_core)
    findings = path_findings(problem, loaded.on_core)
    if prediction.mean_noise_reduction_db < 0:
        findings += negated_filter(predicted(problem, np.negative(taps), loaded.on_core))
    loop = loop_in(problem, taps)
    return EvaluationAnswer(
        prediction=prediction_answer(prediction, problem.reference_psd is not None),
        loop=loop_answer(loop),
        warnings=collect_warnings(
            sent_paths(body.all_conditions), problem, prediction, implausible=findings, loop=loop
        ),
        timings_ms=timings({"predict": 1e3 * (perf_counter() - began)}),
    )


def predicted(problem: Problem, taps: Float32 | Complex64, model: Model) -> Prediction:
    """Predict the effect of one filter; raises SynthesisError."""
    (prediction,) = predict_all([problem], [taps], model)
    return answer_or_raise(prediction)


def path_findings(problem: Problem, model: Model) -> tuple[Finding, ...]:
    """Return the faults of the paths, compared with the model's support."""
    return implausible(problem, model)
