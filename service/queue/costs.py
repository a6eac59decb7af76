"""What requests cost on a machine of nominal speed, by everything in them that takes time.

Measured on one core of 2.5 GHz; the queue learns how much faster or slower each kind of work is on its machine.
"""

from __future__ import annotations

from typing import Any

from prime_anc.hardware.realise import Target
from prime_anc.method.gain_curve import GainCurve
from prime_anc.method.types import Problem
from prime_anc.options import DEFAULT_MAX_GAIN_DB
from prime_anc.requests.bodies import EvaluateBody, ExportBody, HybridBody
from prime_anc.requests.takes import CalibrationBody
from prime_anc.requests.verification import VerifyBody
from prime_anc.tasks.problem import DesignRequest
from service.queue.estimates import Cost

# First filter and prediction of one condition, and an update, s.
START_S, UPDATE_S = 1.5e-3, 0.5e-3
# What a limit adds per condition: all of them search for a filter that keeps it.
LIMIT_S = {"ceiling": 15e-3, "louder": 20e-3, "loop": 45e-3, "controller": 8e-3}
# A controller of eight sections on three plants; an export of eight sections or of 4096 taps, at 48 kHz.
HYBRID_S, SECTIONS_S, TAPS_S = 0.3, 0.2, 0.3
# A second of a pair of signals in a calibration, and in a verification, whose designs come on top.
CALIBRATED_S, VERIFIED_S, REDESIGNS_S = 25e-3, 6e-3, 40e-3


def design_cost(requested: DesignRequest) -> Cost:
    """Return the cost of a design."""
    problem, options = requested.problem, requested.options
    n = len(problem.conditions)
    limits = _limits(problem)
    n_filters = 1 + n if options.leave_one_out else 1
    start_s = START_S * (1 + n) / 2 + sum(LIMIT_S[name] * n for name in limits)
    update_s = UPDATE_S * (1 + n) / 2
    kind = ("design", options.method, options.profile, *limits)
    return Cost(kind, n_filters * start_s, n_filters * update_s, options.n_updates)


def evaluation_cost(body: EvaluateBody) -> Cost:
    """Return the cost of a prediction."""
    has_loop = body.feedback is not None or body.controller is not None
    return Cost("evaluation", START_S + (LIMIT_S["controller"] if has_loop else 0.0))


def hybrid_cost(body: HybridBody, n_lent: int) -> Cost:
    """Return the cost of filter and controller; `n_lent`: plants that the model lends."""
    n = len(body.all_conditions)
    n_plants = n + len(body.stability_only) + n_lent
    of_fit = body.controller.n_sections / 8 * (1 + n_plants / 3) / 2
    return Cost("hybrid", HYBRID_S * (1 + of_fit) / 2 * (1 + n) / 2)


def export_cost(body: ExportBody, target: Target) -> Cost:
    """Return the cost of an export; with a loop it is tried again under lower ceilings."""
    oversampling, n = target.sample_rate_hz / 48_000, len(body.all_conditions)
    has_loop = any(item.feedback is not None for item in body.all_conditions)
    if target.form == "fir":
        of_form = ("taps", TAPS_S * (0.3 + 0.7 * target.n_taps / 4096 * oversampling))
    else:
        of_form = ("sections", SECTIONS_S * target.n_sections / 8 * oversampling)
    return Cost(("export", of_form[0], has_loop), of_form[1] * (1 + n) / 2 * (2 if has_loop else 1))


def calibration_cost(body: CalibrationBody) -> Cost:
    """Return the cost of a calibration, which is that of its samples."""
    takes: list[Any] = [*body.takes.probes, *body.takes.drives]
    return Cost("calibration", 0.4 + CALIBRATED_S * sum(len(take.error) for take in takes) / 48_000)


def verification_cost(body: VerifyBody) -> Cost:
    """Return the cost of a verification."""
    return Cost("verification", REDESIGNS_S + VERIFIED_S * sum(len(take.x) for take in body.takes) / 48_000)


def _limits(problem: Problem) -> list[str]:
    """Return the limits that may bind."""
    is_tight = isinstance(problem.ceiling, GainCurve) or problem.ceiling < DEFAULT_MAX_GAIN_DB
    found = {
        "ceiling": is_tight,
        "louder": problem.max_louder_db is not None,
        "loop": any(item.feedback is not None for item in problem.conditions),
        "controller": problem.controller is not None,
    }
    return [name for name, binds in found.items() if binds]
