"""POST /verify: from recordings with the filter off and on to its effect, a diagnosis and a trimmed filter."""

from __future__ import annotations

from dataclasses import asdict, replace
from functools import partial
from typing import Any

import numpy as np
from starlette.requests import Request
from starlette.responses import Response

from prime_anc.measure.verify import (
    BEYOND_A_TRIM,
    RIGHT,
    Deviation,
    Verification,
    diagnose,
    foreign_prediction,
    is_better,
    path_found,
    path_now,
    shifted_filter,
    verify,
)
from prime_anc.measure.verify_controller import OFF_GAIN, MeasuredController, diagnose_controller, verify_both
from prime_anc.method.bands import BAND_CENTRE_HZ, WIDE_BANDS
from prime_anc.method.errors import answer_or_raise
from prime_anc.method.methods import spectrum
from prime_anc.method.posing import with_latency
from prime_anc.method.profiles import FAST
from prime_anc.method.types import Complex64, Design, DesignOptions, Float32, Problem
from service.admission.admission import Gate
from service.api.controllers import controller_document
from service.api.design import evaluated
from service.api.front import Visit, disconnected
from service.api.json_answers import accepted, with_times
from service.api.problem import check_effect, filter_problem, resolved_profile
from service.api.reading import Addresses
from service.calibration.verify_body import VerifyBody

# Findings that leave nothing to say about a controller.
UNJUDGED = {"unrelated", "exchanged_channels", "clipping", "howling"}

# Figures of a verification in the answer.
MEASURED = ("noise_reduction_db", "mean_noise_reduction_db", "amplification_db", "interval_db", "n_blocks")

N_UPDATES = 3
# Least advantage of a filter designed for the changed path over the one shifted to it.
REDESIGN_MARGIN_DB = 0.3

addresses = Addresses()


@addresses.post("/verify")
async def verify_filter(request: Request, body: VerifyBody) -> Response:
    """Compare levels with the filter off and on per band with the prediction, and gain, delay and polarity of the
    secondary path with the one that was sent; diagnose what is off, and trim the filter for gain and delay where these
    are. All figures are medians over blocks of 0.8 s."""
    visit: Visit = request.state.visit
    accepted(visit.accept)
    given = filter_problem(body)
    posed = with_latency(given)
    # With a controller, whose loop lacks the latency of the filter's chain, predictions take the paths as sent.
    used = posed if given.controller is None else given
    (late,), (known,) = posed.conditions, used.conditions
    direction = -1 if body.sign == "plus" else 1
    taps = direction * body.fir
    check_effect(taps, posed)
    visit.decoded()

    def run() -> tuple[Verification, MeasuredController | None]:
        if given.controller is None:
            return verify(body.takes, taps, late.primary, late.secondary, late.feedback), None
        return verify_both(
            body.takes, taps, given.controller, late.primary, late.secondary, known.secondary, late.feedback
        )

    found, beside = await visit.service.shares[Gate.VERIFICATION].run(
        run, visit.due, partial(disconnected, request)
    )
    both = [used, _error_free(used, found)]
    answer, bound = await evaluated(request, body.model, both, [taps, taps], is_continued=True)
    expected, possible_db = answer.prediction, bound.prediction.mean_noise_reduction_db
    bands, mean, foreign = expected.noise_reduction_db, expected.mean_noise_reduction_db, None
    if body.prediction is not None:
        bands, mean = np.array(body.prediction["bands"]), body.prediction["mean"]
        is_exported = np.iscomplexobj(taps)
        foreign = foreign_prediction(expected, bands, body.prediction["max_gain_db"], is_exported=is_exported)
    reachable = np.minimum(bands, bound.prediction.noise_reduction_db)
    options = DesignOptions("prime", N_UPDATES, resolved_profile(FAST.name, (body.primary, body.secondary)))
    # What a controller adds does not count towards the filter's part.
    promised = bands if beside is None else -np.inf
    best_db = possible_db
    if is_better(found, possible_db):
        best = await _designed(request, body.model, options, both[1])
        best_db = best.prediction.mean_noise_reduction_db
    diagnosis = diagnose(
        found,
        mean,
        possible_db,
        reachable,
        promised_db=promised,
        best_db=best_db,
        is_trimmed=not np.iscomplexobj(taps),
    )
    if foreign is not None:
        diagnosis = [foreign, *(item for item in diagnosis if item.code not in RIGHT)]
    diagnosis = _with_controller(diagnosis, beside)
    trim = None
    if not BEYOND_A_TRIM & {item.code for item in diagnosis}:
        trim = await _trim(request, body.model, options, _beside_speaker(used, found), taps, found)
        if trim["fir"] is not None:
            trim["fir"] = direction * trim["fir"]
        if beside is not None and given.controller is not None and beside.is_known and abs(beside.gain) >= OFF_GAIN:
            trim["controller"] = controller_document(
                given.controller.scaled(1 / beside.loop_gain), body.controller.number_format, body.sign
            )
    document = {
        "measured": {"band_centre_hz": BAND_CENTRE_HZ} | {name: getattr(found, name) for name in MEASURED},
        "predicted_noise_reduction_db": mean,
        "predicted_interval_db": expected.interval_db,
        "deviation_db": found.mean_noise_reduction_db - mean,
        "band_deviation_db": found.noise_reduction_db - bands,
        "diagnosis": [{k: v for k, v in asdict(item).items() if v is not None} for item in diagnosis],
        "trim": trim,
    }
    content, times = with_times(document, {}, visit)
    return visit.response(content, times)


def _error_free(used: Problem, found: Verification) -> Problem:
    """Return the problem with the paths as they are now, without errors: the most that can be reduced."""
    (known,) = used.conditions
    secondary = path_now(known.secondary, found)
    feedback = None if known.feedback is None else path_now(known.feedback, found)
    certain = np.zeros((2, len(WIDE_BANDS)), np.float32)
    # The loop stays as it was designed, with the loudspeaker as it is.
    looped = used if secondary is known.secondary else _beside_speaker(used, found)
    paths = replace(known, secondary=secondary, feedback=feedback, uncertainty=certain)
    return replace(looped, conditions=(paths,))


def _with_controller(diagnosis: list[Deviation], beside: MeasuredController | None) -> list[Deviation]:
    """Put the deviations of a controller before those of the filter."""
    if beside is None or UNJUDGED & {item.code for item in diagnosis}:
        return diagnosis
    off = diagnose_controller(beside)
    plain = RIGHT | {"implausible_reduction"} if off and beside.is_known else set()
    return [*off, *(item for item in diagnosis if item.code not in plain)]


def _beside_speaker(used: Problem, found: Verification) -> Problem:
    """Return the problem with a controller that undoes the loudspeaker's change of level."""
    gain = 10 ** (-found.gain_db / 20) * (-1 if found.is_inverted else 1)
    return used if used.controller is None else replace(used, controller=used.controller.scaled(gain))


async def _designed(request: Request, model: str | None, options: DesignOptions, problem: Problem) -> Design:
    visit: Visit = request.state.visit
    _, (design,) = await visit.service.engine.design(
        model, options, [problem], visit.due, partial(disconnected, request), is_continued=True
    )
    return answer_or_raise(design)


async def _trim(
    request: Request,
    model: str | None,
    options: DesignOptions,
    used: Problem,
    taps: Float32 | Complex64,
    found: Verification,
) -> dict[str, Any]:
    """Return the filter for the secondary path as it is now: shifted, or redesigned if that is clearly better.

    What a chip runs is not designed again.
    """
    shifted = shifted_filter(taps, found)
    (known,) = used.conditions
    feedback = None if known.feedback is None else path_found(known.feedback, found)
    changed = replace(known, secondary=path_found(known.secondary, found), feedback=feedback)
    now = replace(used, conditions=(changed,))
    (answer,) = await evaluated(request, model, [now], [shifted], is_continued=True)
    best, reached_db = None, answer.prediction.mean_noise_reduction_db
    if not np.iscomplexobj(taps):
        best = shifted
        loudest_db = 20 * float(np.log10(np.abs(spectrum(shifted)).max()))
        redesign = await _designed(request, model, options, replace(now, max_gain_db=loudest_db))
        if redesign.prediction.mean_noise_reduction_db > reached_db + REDESIGN_MARGIN_DB:
            best, reached_db = redesign.taps, redesign.prediction.mean_noise_reduction_db
    return {
        "gain_db": -found.gain_db,
        "delay_samples": -found.delay_samples,
        "invert": found.is_inverted,
        "predicted_noise_reduction_db": reached_db,
        "fir": best,
    }
