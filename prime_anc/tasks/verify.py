"""Measure the effect of a running filter from recordings with it off and on, diagnose it, and trim it."""

from __future__ import annotations

from dataclasses import asdict, replace
from time import perf_counter
from typing import Any

import numpy as np

from prime_anc.answers import DiagnosisEntry, MeasuredAnswer, TrimAnswer, VerificationAnswer
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
)
from prime_anc.measure.verify import verify as measured
from prime_anc.measure.verify_controller import OFF_GAIN, MeasuredController, diagnose_controller, verify_both
from prime_anc.method.bands import BAND_CENTRE_HZ, WIDE_BANDS
from prime_anc.method.design import design as designed
from prime_anc.method.methods import spectrum
from prime_anc.method.posing import with_latency
from prime_anc.method.profiles import FAST
from prime_anc.method.types import Complex64, Design, DesignOptions, Float32, Problem
from prime_anc.requests.controllers import in_sign
from prime_anc.requests.verification import VerifyBody
from prime_anc.tasks.controllers import controller_answer
from prime_anc.tasks.design import predicted
from prime_anc.tasks.models import LoadedModel
from prime_anc.tasks.predictions import timings
from prime_anc.tasks.problem import check_effect, filter_problem, resolved_profile, signed

# Findings that leave nothing to say about a controller.
UNJUDGED = {"unrelated", "exchanged_channels", "clipping", "howling"}

# Figures of a verification in the answer.
MEASURED = ("noise_reduction_db", "mean_noise_reduction_db", "amplification_db", "interval_db", "n_blocks")

N_UPDATES = 3
# Least advantage of a filter designed for the changed path over the one shifted to it.
REDESIGN_MARGIN_DB = 0.3


def verify(body: VerifyBody, loaded: LoadedModel) -> VerificationAnswer:
    """Compare levels with the filter off and on per band with the prediction, and the secondary path with the one sent.

    The diagnosis says what is off; where that is gain or delay, the filter is trimmed for it. All figures are medians
    over blocks of 0.8 s.
    """
    began = perf_counter()
    given = filter_problem(body)
    posed = with_latency(given)
    # With a controller, whose loop lacks the latency of the filter's chain, predictions take the paths as sent.
    used = posed if given.controller is None else given
    direction = -1 if body.sign == "plus" else 1
    taps = direction * body.fir
    check_effect(taps, posed)
    found, beside = _measured(body, taps, given, posed)
    now = _error_free(used, found)
    expected, bound = (predicted(problem, taps, loaded.on_core) for problem in (used, now))
    possible_db = bound.mean_noise_reduction_db
    bands, mean, foreign = expected.noise_reduction_db, expected.mean_noise_reduction_db, None
    if body.prediction is not None:
        bands, mean = np.array(body.prediction["bands"]), body.prediction["mean"]
        is_exported = np.iscomplexobj(taps)
        foreign = foreign_prediction(expected, bands, body.prediction["max_gain_db"], is_exported=is_exported)
    options = DesignOptions("prime", N_UPDATES, resolved_profile(FAST.name, (body.primary, body.secondary)))
    best_db = possible_db
    if is_better(found, possible_db):
        best_db = _best(now, options, loaded).prediction.mean_noise_reduction_db
    diagnosis = diagnose(
        found,
        mean,
        possible_db,
        np.minimum(bands, bound.noise_reduction_db),
        # What a controller adds does not count towards the filter's part.
        promised_db=bands if beside is None else -np.inf,
        best_db=best_db,
        is_trimmed=not np.iscomplexobj(taps),
    )
    if foreign is not None:
        diagnosis = [foreign, *(item for item in diagnosis if item.code not in RIGHT)]
    diagnosis = _with_controller(diagnosis, beside)
    trim = None
    if not BEYOND_A_TRIM & {item.code for item in diagnosis}:
        trim = _trim(body, _beside_speaker(used, found), taps, found, beside, options, loaded)
    return VerificationAnswer(
        measured=MeasuredAnswer(
            band_centre_hz=np.array(BAND_CENTRE_HZ), **{name: getattr(found, name) for name in MEASURED}
        ),
        predicted_noise_reduction_db=mean,
        predicted_interval_db=expected.interval_db,
        deviation_db=found.mean_noise_reduction_db - mean,
        band_deviation_db=found.noise_reduction_db - bands,
        diagnosis=[DiagnosisEntry(**asdict(item)) for item in diagnosis],
        trim=trim,
        timings_ms=timings({"predict": 1e3 * (perf_counter() - began)}),
    )


def _measured(
    body: VerifyBody, taps: Float32 | Complex64, given: Problem, posed: Problem
) -> tuple[Verification, MeasuredController | None]:
    """Measure the filter, and the controller beside it, if one runs."""
    (late,), (known,) = posed.conditions, given.conditions
    if given.controller is None:
        return measured(body.takes, taps, late.primary, late.secondary, late.feedback), None
    return verify_both(
        body.takes, taps, given.controller, late.primary, late.secondary, known.secondary, late.feedback
    )


def _best(problem: Problem, options: DesignOptions, loaded: LoadedModel) -> Design:
    """Design a filter for the paths as they are now."""
    return designed(problem, options, loaded.on_core, loaded.fallback)


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


def _trim(
    body: VerifyBody,
    used: Problem,
    taps: Float32 | Complex64,
    found: Verification,
    beside: MeasuredController | None,
    options: DesignOptions,
    loaded: LoadedModel,
) -> TrimAnswer:
    """Return the filter for the secondary path as it is now: shifted, or redesigned if that is clearly better.

    What a chip runs is not designed again.
    """
    shifted = shifted_filter(taps, found)
    (known,) = used.conditions
    feedback = None if known.feedback is None else path_found(known.feedback, found)
    now = replace(
        used,
        conditions=(replace(known, secondary=path_found(known.secondary, found), feedback=feedback),),
    )
    best: Any = None
    reached_db = predicted(now, shifted, loaded.on_core).mean_noise_reduction_db
    if not np.iscomplexobj(taps):
        best = shifted
        loudest_db = 20 * float(np.log10(np.abs(spectrum(shifted)).max()))
        redesign = _best(replace(now, max_gain_db=loudest_db), options, loaded)
        if redesign.prediction.mean_noise_reduction_db > reached_db + REDESIGN_MARGIN_DB:
            best, reached_db = redesign.taps, redesign.prediction.mean_noise_reduction_db
        best = signed(best, body.sign)
    controller = None
    if beside is not None and beside.is_known and abs(beside.gain) >= OFF_GAIN:
        assert used.controller is not None
        running = in_sign(body.controller.controller, body.sign)
        controller = controller_answer(
            running.scaled(1 / beside.loop_gain), body.controller.number_format, body.sign
        )
    return TrimAnswer(
        gain_db=-found.gain_db,
        delay_samples=-found.delay_samples,
        invert=found.is_inverted,
        predicted_noise_reduction_db=reached_db,
        fir=best,
        controller=controller,
    )
