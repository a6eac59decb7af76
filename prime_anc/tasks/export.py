"""Realise a filter as hardware runs it, with its prediction and loss, or as a file."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from functools import partial
from time import perf_counter
from typing import Any

import numpy as np

from prime_anc.answers import Coefficients, ExportAnswer, ScalingAnswer, Warning_
from prime_anc.hardware import filter_files
from prime_anc.hardware.hybrid import playback_peak_db
from prime_anc.hardware.realise import Realised, Target, realise, realised_sections, under_loop
from prime_anc.hardware.residual_power import PathSpectra
from prime_anc.method.ceiling import ceiling_db, excess_db
from prime_anc.method.conventions import DESIGN_N_FFT, N_TAPS, SAMPLE_RATE_HZ
from prime_anc.method.gain_curve import TOLERANCE_DB, GainCurve
from prime_anc.method.loops.sections import Sections
from prime_anc.method.methods import spectrum
from prime_anc.method.posing import pose
from prime_anc.method.profiles import FAST
from prime_anc.method.types import Float32, Model, Problem
from prime_anc.options import ObjectiveFields
from prime_anc.requests.bodies import ExportBody
from prime_anc.requests.errors import RequestError
from prime_anc.tasks.controllers import running_answer
from prime_anc.tasks.design import path_findings, predicted
from prime_anc.tasks.models import LoadedModel
from prime_anc.tasks.predictions import loop_answer, prediction_answer, timings
from prime_anc.tasks.problem import check_effect, filter_problem, loop_in, objective_of, sent_paths, signed
from prime_anc.tasks.warnings import collect_warnings, unlike_filter, unlike_target

# Margins of the sent filter's loop that an export keeps, if it has them.
KEPT_GAIN_DB, KEPT_PHASE_DEG = 12.0, 60.0
# What the margins of a loop may lack: the last tenths of a decibel can cost most of the noise reduction.
LACK_DB, LACK_DEG = 0.3, 1.0
# Ceilings on |L|, from the peak of the sent filter down to the gain margin, of which the first that keeps both holds.
LOOP_ROUNDS = 4


@dataclass(frozen=True, eq=False)
class FilterFile:
    """A file of a filter."""

    content: bytes
    media_type: str
    name: str
    warnings: list[Warning_]


def export(body: ExportBody, loaded: LoadedModel) -> ExportAnswer | FilterFile:
    """Realise a filter as hardware runs it.

    Second-order sections or taps, for the target's number of coefficients, sample rate and number format, are designed
    by the objective of the updates; their effect is predicted. With `file`, the answer is that file.
    """
    given, goal, target = filter_problem(body), objective_of(body), body.target.as_target()
    parameters = loaded.model.parameters
    psd = parameters.reference_psd if given.reference_psd is None else given.reference_psd
    taps = signed(body.fir, body.sign)
    if taps.any():
        check_effect(taps, given)
    if target.keeps(N_TAPS) and "max_gain_db" in body.model_fields_set:
        _check_ceiling(taps, goal.ceiling)
    realised = _realised(given, loaded.on_core, psd, target, taps, goal)
    if taps.any() and not realised.response.any():
        found = (
            f"fir: {target.number_format} rounds all taps to zero; use more fraction bits, or send a louder filter"
        )
        raise RequestError("invalid-field", found, "fir")
    began = perf_counter()
    full = predicted(given, taps, loaded.on_core)
    exported = predicted(given, realised.response.astype(np.complex64), loaded.on_core)
    predict_ms = 1e3 * (perf_counter() - began)
    # The largest |W| is that over all frequencies at the hardware's rate, not only the design grid.
    exported = replace(exported, max_gain_db=realised.max_gain_db)
    loop = loop_in(given, realised.response)
    # Longer taps, of a lower rate, may rightly be better.
    is_longer = target.form == "fir" and target.n_taps / target.sample_rate_hz > N_TAPS / SAMPLE_RATE_HZ
    findings = path_findings(given, loaded.on_core) + (() if is_longer else unlike_filter(full, exported))
    if (running := body.controller) is not None:
        of_controller = running.controller.sections.sample_rate_hz, running.number_format
        findings += unlike_target(of_controller, (target.sample_rate_hz, target.number_format))
    warnings = collect_warnings(sent_paths(body.all_conditions), given, exported, implausible=findings, loop=loop)
    if body.file is not None:
        return _file(body.file, realised, target, body, warnings)
    return ExportAnswer(
        coefficients=coefficients_answer(_signed(realised, body.sign)),
        prediction=prediction_answer(exported, given.reference_psd is not None),
        controller=running_answer(body),
        loop=loop_answer(loop),
        loss_db=full.mean_noise_reduction_db - exported.mean_noise_reduction_db,
        warnings=warnings,
        sign=body.sign,
        latency_samples=body.latency_samples,
        timings_ms=timings({"predict": predict_ms}),
    )


def _check_ceiling(taps: Float32, max_gain_db: float | GainCurve) -> None:
    """Refuse a ceiling that taps which the target keeps exceed."""
    excess = excess_db(taps, ceiling_db(max_gain_db, DESIGN_N_FFT))
    if excess > TOLERANCE_DB:
        found = f"max_gain_db: `fir`, which this target keeps, exceeds it by {excess:.1f} dB"
        what = "design the filter under this ceiling, or leave max_gain_db out"
        raise RequestError("invalid-field", f"{found}; {what}", "max_gain_db")


def _realised(
    given: Problem, model: Model, psd: Float32, target: Target, taps: Float32, goal: ObjectiveFields
) -> Realised:
    """Realise the filter for the paths as the updates see them."""
    posed = pose(given, model)
    aim = posed.open_loop
    arrays = zip(aim.primary, aim.secondary, aim.shares, aim.uncertainty, strict=True)
    spectra = [PathSpectra(spectrum(p), spectrum(s), share, unknown) for p, s, share, unknown in arrays]
    profile = replace(FAST, **goal.weights)
    realised = partial(realise, reference_psd=psd, target=target, taps=taps, profile=profile)
    made, designed = realised(spectra, max_gain_db=goal.ceiling), loop_in(given, taps)
    if designed is None or not designed.stable or target.keeps(N_TAPS):
        return made
    # The new design knows nothing of the loop, whose margins the sent filter has.
    gain_margin_db = min(KEPT_GAIN_DB, designed.gain_margin_db) - LACK_DB
    phase_margin_deg = min(KEPT_PHASE_DEG, designed.phase_margin_deg) - LACK_DEG

    def keeps_margins(made: Realised) -> bool:
        loop = loop_in(given, made.response)
        assert loop is not None
        keeps_both = loop.gain_margin_db >= gain_margin_db and loop.phase_margin_deg >= phase_margin_deg
        return loop.stable and keeps_both

    if not keeps_margins(made) and target.lasts_as_long:
        # What takes away the filter's own sound is the filter.
        response = spectrum(taps)
        itself = [replace(item, primary=item.secondary * response, uncertainty=None) for item in spectra]
        made = realised(itself, max_gain_db=goal.ceiling)
    feedbacks = [spectrum(item) for item in posed.feedback if item is not None]
    for largest_db in np.linspace(max(designed.peak_db, -gain_margin_db), -gain_margin_db, LOOP_ROUNDS):
        if keeps_margins(made):
            break
        made = realised(spectra, max_gain_db=under_loop(goal.ceiling, feedbacks, 10 ** (largest_db / 20)))
    return made


def _file(kind: str, realised: Realised, target: Target, body: ExportBody, warnings: list[Warning_]) -> FilterFile:
    """Return a file of the filter, and of the controller beside it, if any."""
    wired, running = _signed(realised, body.sign), body.controller
    if running is None:
        return FilterFile(*filter_files.write(wired, kind, body.sign), warnings)
    beside = partial(realised_sections, number_format=running.number_format, denominator=target.denominator)
    controller, playback = beside(running.controller.sections), None
    if running.playback_sos is not None:
        sections = Sections(running.playback_sos, controller.sample_rate_hz)
        playback = beside(sections.scaled(10 ** (-playback_peak_db(sections) / 20)))
    return FilterFile(*filter_files.write_both(wired, controller, kind, body.sign, playback), warnings)


def _signed(realised: Realised, sign: str) -> Realised:
    """Negate the filter for `plus`: the taps, or the first section's numerator."""
    if sign == "minus":
        return realised
    quantised, taps, sections = realised.quantised, realised.taps, realised.sections
    if taps is not None:
        if quantised is not None:
            quantised = quantised.times(np.full(len(taps), -1))
        return replace(realised, taps=-taps, quantised=quantised)
    assert sections is not None
    flip = np.ones_like(sections.rows)
    flip[0, :3] = -1
    if quantised is not None:
        quantised = quantised.times(flip[:, [0, 1, 2, 4, 5]].astype(np.int64))
    return replace(realised, sections=replace(sections, rows=sections.rows * flip), quantised=quantised)


def coefficients_answer(realised: Realised) -> Coefficients:
    """Return a realised filter as answers hold it."""
    found: dict[str, Any] = {}
    if realised.taps is not None:
        found |= {"form": "fir", "taps": realised.taps}
    else:
        assert realised.sections is not None
        found |= {"form": "sos", "sos": realised.sections.rows, "denominator": realised.denominator}
    if (quantised := realised.quantised) is not None:
        found |= {
            "number_format": str(quantised.format),
            "words": quantised.words,
            "shift": quantised.shift.tolist(),  # one number for taps
            "n_saturated": quantised.n_saturated,
        }
    if realised.scaling is not None:
        found["scaling"] = ScalingAnswer(**asdict(realised.scaling))
    return Coefficients(sample_rate=realised.sample_rate_hz, **found)
