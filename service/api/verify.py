"""POST /verify: recordings with the filter off and on in, what it does, what is off and a trimmed filter out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from starlette.responses import Response

from measurement.verify import (
    Deviation,
    Verification,
    diagnose,
    foreign_prediction,
    path_found,
    path_now,
    shifted_taps,
    verify,
)
from service.api.call import JSON, Call, timed_response
from service.api.json_answers import BAND_CENTRE_HZ, with_times
from service.api.paths import PathsOfCondition, check_effect, joint_input, resolved_profile
from service.api.request_types import read_object
from service.calibration.verify_body import VerifyBody
from synthesis.conventions import DESIGN_N_FFT
from synthesis.errors import answer_or_raise
from synthesis.latency import with_latency
from synthesis.octave_bands import WIDE_BANDS
from synthesis.profiles import FAST
from synthesis.types import DesignOptions, Float32, Problem

BEYOND_A_TRIM = {"howling", "not_running", "leak", "refit", "unrelated", "clipping", "implausible_reduction"}
"""Findings that no gain and delay put right: measure again."""

N_UPDATES = 3
REDESIGN_MARGIN_DB = 0.3
"""By which a new filter for the changed path must be predicted to be better than the one shifted to it."""


async def verify_filter(call: Call) -> Response:
    """Levels with the filter off and on per band, compared with the prediction; gain, delay and polarity of the
    secondary path against the one that was sent; a diagnosis, and the filter trimmed for gain and delay where these
    are what is off. All figures are medians over blocks of 0.8 s."""
    call.answer_type((JSON,))
    read = read_object(VerifyBody, await call.read_json())
    paths = PathsOfCondition(
        read.primary, read.secondary, read.coherence, read.feedback, uncertainty=read.uncertainty
    )
    latency = float(read.latency_samples)
    used = with_latency(joint_input([paths], read.reference_psd, float("inf"), latency_samples=latency))
    (known,) = used.conditions
    direction = -1 if read.sign == "plus" else 1
    taps = direction * read.fir
    check_effect(taps, used)
    call.decoded()
    found = await call.service.verifications.run(
        lambda: verify(read.takes, taps, known.primary, known.secondary, known.feedback),
        call.due,
        call.disconnected,
    )
    # No more can be taken away than on the paths as they are now, known without errors.
    certain = replace(
        known,
        secondary=path_now(known.secondary, found),
        feedback=None if known.feedback is None else path_now(known.feedback, found),
        uncertainty=np.zeros((2, len(WIDE_BANDS)), np.float32),
    )
    both = [used, replace(used, conditions=(certain,))]
    answer, bound = await call.evaluate(read.model, both, [taps, taps], is_continued=True)
    own = answer.prediction
    bands, mean = own.noise_reduction_db, own.mean_noise_reduction_db
    foreign = None
    if read.prediction is not None:
        bands, mean = np.array(read.prediction["bands"]), read.prediction["mean"]
        foreign = foreign_prediction(own, bands, read.prediction["max_gain_db"])
    diagnosis = diagnose(found, mean, bound.prediction.mean_noise_reduction_db)
    if foreign is not None:
        diagnosis = [foreign, *(each for each in diagnosis if each.code != "as_predicted")]
    trim = None
    if not BEYOND_A_TRIM & {each.code for each in diagnosis}:
        profile = resolved_profile(FAST.name, (read.primary, read.secondary))
        trim = await _trim(call, read.model, DesignOptions("prime", N_UPDATES, profile), used, taps, found)
        trim["fir"] = direction * trim["fir"]
    document = {
        "measured": measured_document(found),
        "predicted_noise_reduction_db": mean,
        "deviation_db": found.mean_noise_reduction_db - mean,
        "band_deviation_db": found.noise_reduction_db - bands,
        "diagnosis": [_deviation_document(each) for each in diagnosis],
        "trim": trim,
    }
    content, times = with_times(document, {}, call)
    return timed_response(content, times)


async def _trim(
    call: Call, model: str | None, options: DesignOptions, used: Problem, taps: Float32, found: Verification
) -> dict[str, Any]:
    """The filter for the secondary path as it is now: shifted, or designed anew if that is clearly better."""
    shifted = shifted_taps(taps, found)
    loudest_db = 20 * float(np.log10(np.abs(np.fft.rfft(shifted, DESIGN_N_FFT)).max()))
    (known,) = used.conditions
    feedback = None if known.feedback is None else path_found(known.feedback, found)
    changed = replace(known, secondary=path_found(known.secondary, found), feedback=feedback)
    now = replace(used, conditions=(changed,), max_gain_db=loudest_db)
    _, (design,) = await call.service.engine.design(
        model, options, [now], call.due, call.disconnected, is_continued=True
    )
    own = answer_or_raise(design)
    (answer,) = await call.evaluate(model, [now], [shifted], is_continued=True)
    best, reached_db = shifted, answer.prediction.mean_noise_reduction_db
    if own.prediction.mean_noise_reduction_db > reached_db + REDESIGN_MARGIN_DB:
        best, reached_db = own.taps, own.prediction.mean_noise_reduction_db
    return {
        "gain_db": -found.gain_db,
        "delay_samples": -found.delay_samples,
        "invert": found.is_inverted,
        "predicted_noise_reduction_db": reached_db,
        "fir": best,
    }


def measured_document(found: Verification) -> dict[str, Any]:
    """The `measured` of an answer."""
    return {
        "band_centre_hz": BAND_CENTRE_HZ,
        "noise_reduction_db": found.noise_reduction_db,
        "mean_noise_reduction_db": found.mean_noise_reduction_db,
        "amplification_db": found.amplification_db,
        "interval_db": found.interval_db,
        "n_blocks": found.n_blocks,
    }


def _deviation_document(deviation: Deviation) -> dict[str, Any]:
    document: dict[str, Any] = {"code": deviation.code, "detail": deviation.detail}
    if deviation.by is not None:
        document["by"] = deviation.by
    return document
