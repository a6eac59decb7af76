"""POST /export: a filter as hardware runs it, with its prediction and loss."""

from __future__ import annotations

import asyncio
from dataclasses import asdict, replace
from functools import partial
from typing import Any

import numpy as np
from starlette.requests import Request
from starlette.responses import Response

from prime_anc import answers
from prime_anc.hardware import filter_files
from prime_anc.hardware.hybrid import playback_peak_db
from prime_anc.hardware.realise import Realised, Target, realise, realised_sections, under_loop
from prime_anc.hardware.residual_power import PathSpectra
from prime_anc.method.ceiling import ceiling_db, excess_db
from prime_anc.method.conventions import DESIGN_N_FFT, N_TAPS, SAMPLE_RATE_HZ
from prime_anc.method.gain_curve import TOLERANCE_DB, GainCurve
from prime_anc.method.methods import spectrum
from prime_anc.method.posing import pose
from prime_anc.method.profiles import FAST
from prime_anc.method.sections import Sections
from prime_anc.method.types import Float32, Model, Problem, weighted, weights_of
from service.admission.admission import Gate
from service.api.controllers import running_document
from service.api.design import evaluated
from service.api.front import Visit, disconnected
from service.api.json_answers import accepted, loop_document, prediction_answer, with_times
from service.api.problem import check_effect, filter_problem, loop_in, sent_paths
from service.api.reading import Addresses
from service.api.request_types import ExportBody
from service.api.warnings import collect_warnings, unlike_filter, unlike_target, warning_headers
from service.engine.work import work_of
from service.errors import HttpProblem

# Margins of the sent filter's loop that an export keeps, if it has them.
KEPT_GAIN_DB, KEPT_PHASE_DEG = 12.0, 60.0
# What the margins of a loop may lack: the last tenths of a decibel can cost most of the noise reduction.
LACK_DB, LACK_DEG = 0.3, 1.0
# Ceilings on |L|, from the peak of the sent filter down to the gain margin, of which the first that keeps both holds.
LOOP_ROUNDS = 4

addresses = Addresses()


@addresses.post("/export")
async def export(request: Request, body: ExportBody) -> Response:
    """Realise a filter as hardware runs it. Second-order sections or taps, for its number of coefficients, sample rate
    and number format, are designed by the objective of the updates; their effect is predicted. With `file`, the answer
    is that file."""
    visit: Visit = request.state.visit
    if body.file is None:
        accepted(visit.accept)
    given, target = filter_problem(body), body.target.as_target()
    watch = partial(disconnected, request)
    resident = await visit.service.engine.models.model(body.model, visit.due, watch)
    psd = resident.parameters.reference_psd if given.reference_psd is None else given.reference_psd
    taps = -body.fir if body.sign == "plus" else body.fir
    if taps.any():
        check_effect(taps, given)
    if target.keeps(N_TAPS) and "max_gain_db" in body.model_fields_set:
        _check_ceiling(taps, body.max_gain_db)
    visit.decoded()
    realising = partial(_realised, given, resident.model, psd, target, taps, body)
    realised = await visit.service.shares[Gate.EXPORT].run(realising, visit.due, watch, work_of(target))
    if taps.any() and not realised.response.any():
        found = (
            f"fir: {target.number_format} rounds all taps to zero; use more fraction bits, or send a louder filter"
        )
        raise HttpProblem("invalid-field", found, "fir")
    response = realised.response.astype(np.complex64)
    full, exported = await evaluated(request, body.model, [given, given], [taps, response], is_continued=True)
    # The largest |W| is that over all frequencies at the hardware's rate, not only the design grid.
    prediction = replace(exported.prediction, max_gain_db=realised.max_gain_db)
    loop = loop_in(given, realised.response)
    # Longer taps, of a lower rate, may rightly be better.
    is_longer = target.form == "fir" and target.n_taps / target.sample_rate_hz > N_TAPS / SAMPLE_RATE_HZ
    findings = full.implausible + (() if is_longer else unlike_filter(full.prediction, prediction))
    if (running := body.controller) is not None:
        of_controller = running.controller.sections.sample_rate_hz, running.number_format
        findings += unlike_target(of_controller, (target.sample_rate_hz, target.number_format))
    sent = sent_paths(body.all_conditions)
    warnings = collect_warnings(sent, given, prediction, implausible=findings, loop=loop)
    if body.file is not None:
        return await asyncio.to_thread(_file, body.file, realised, target, body, warning_headers(warnings))
    document = {
        "coefficients": coefficients_document(_signed(realised, body.sign)),
        "prediction": answers.document(prediction_answer(prediction, given.reference_psd is not None)),
        "loss_db": full.prediction.mean_noise_reduction_db - prediction.mean_noise_reduction_db,
        "warnings": warnings,
        "sign": body.sign,
        "latency_samples": body.latency_samples,
    }
    document |= loop_document(loop) | running_document(body)
    content, times = with_times(document, exported.times_ms, visit)
    return visit.response(content, times)


def _check_ceiling(taps: Float32, max_gain_db: float | GainCurve) -> None:
    """Refuse a ceiling that taps which the target keeps exceed."""
    excess = excess_db(taps, ceiling_db(max_gain_db, DESIGN_N_FFT))
    if excess > TOLERANCE_DB:
        found = f"max_gain_db: `fir`, which this target keeps, exceeds it by {excess:.1f} dB"
        what = "design the filter under this ceiling, or leave max_gain_db out"
        raise HttpProblem("invalid-field", f"{found}; {what}", "max_gain_db")


def _realised(
    given: Problem, model: Model, psd: Float32, target: Target, taps: Float32, body: ExportBody
) -> Realised:
    """Realise the filter for the paths as the updates see them."""
    posed = pose(given, model)
    aim = posed.open_loop
    arrays = zip(aim.primary, aim.secondary, aim.shares, aim.uncertainty, strict=True)
    spectra = [PathSpectra(spectrum(p), spectrum(s), share, unknown) for p, s, share, unknown in arrays]
    profile = weighted(FAST, weights_of(body))
    realised = partial(realise, reference_psd=psd, target=target, taps=taps, profile=profile)
    made, designed = realised(spectra, max_gain_db=body.max_gain_db), loop_in(given, taps)
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
        made = realised(itself, max_gain_db=body.max_gain_db)
    feedbacks = [spectrum(item) for item in posed.feedback if item is not None]
    for largest_db in np.linspace(max(designed.peak_db, -gain_margin_db), -gain_margin_db, LOOP_ROUNDS):
        if keeps_margins(made):
            break
        made = realised(spectra, max_gain_db=under_loop(body.max_gain_db, feedbacks, 10 ** (largest_db / 20)))
    return made


def _file(kind: str, realised: Realised, target: Target, body: ExportBody, headers: dict[str, str]) -> Response:
    """Answer with a file of the filter, and of the controller beside it, if any."""
    signed, running = _signed(realised, body.sign), body.controller
    if running is None:
        content, media_type, name = filter_files.write(signed, kind, body.sign)
    else:
        beside = partial(realised_sections, number_format=running.number_format, denominator=target.denominator)
        controller, playback = beside(running.controller.sections), None
        if running.playback_sos is not None:
            sections = Sections(running.playback_sos, controller.sample_rate_hz)
            playback = beside(sections.scaled(10 ** (-playback_peak_db(sections) / 20)))
        content, media_type, name = filter_files.write_both(signed, controller, kind, body.sign, playback)
    headers |= {"Content-Disposition": f'attachment; filename="{name}"'}
    return Response(content, media_type=media_type, headers=headers)


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


def coefficients_document(realised: Realised) -> dict[str, Any]:
    """Return the `coefficients` of an answer."""
    document: dict[str, Any] = {"sample_rate": realised.sample_rate_hz}
    if realised.taps is not None:
        document |= {"form": "fir", "taps": realised.taps}
    else:
        assert realised.sections is not None
        document |= {"form": "sos", "sos": realised.sections.rows, "denominator": realised.denominator}
    if realised.quantised is not None:
        quantised = realised.quantised
        document |= {
            "number_format": str(quantised.format),
            "words": quantised.words,
            "shift": quantised.shift.tolist(),  # one number for taps
            "n_saturated": quantised.n_saturated,
        }
    if realised.scaling is not None:
        document["scaling"] = asdict(realised.scaling)
    return document
