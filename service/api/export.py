"""POST /export: a filter in the form that hardware runs, with its own prediction and what it loses."""

from __future__ import annotations

import asyncio
from dataclasses import asdict, replace
from typing import Any

import numpy as np
from starlette.responses import Response

from hardware import filter_files
from hardware.realise import Realised, realise
from hardware.residual_power import PathSpectra
from service.api.call import JSON, Call, timed_response
from service.api.design import paths_of
from service.api.json_answers import loop_document, prediction_document, with_times
from service.api.paths import check_effect, joint_input
from service.api.request_types import ExportBody, ExportConditionsBody, read_paths
from service.api.warnings import collect_warnings, unlike_filter
from service.engine.work import work_of
from service.errors import HttpProblem
from synthesis.conventions import DESIGN_N_FFT, N_TAPS
from synthesis.feedback import loop_of
from synthesis.gain_curve import TOLERANCE_DB, ceiling_db, excess_db
from synthesis.latency import with_latency
from synthesis.methods import spectrum


async def export(call: Call) -> Response:
    """Second-order sections or taps, designed on the objective of the updates for the hardware's number of
    coefficients, rate and number format, and predicted again. With `file`, the answer is that file."""
    read = read_paths(await call.read_json(), ExportBody, ExportConditionsBody)
    if read.file is None:
        call.answer_type((JSON,))
    given = joint_input(
        [paths_of(each) for each in read.conditions],
        read.reference_psd,
        float("inf"),
        latency_samples=float(read.latency_samples),
    )
    resident = await call.service.engine.models.model(read.model, call.due, call.disconnected)
    psd = resident.parameters.reference_psd if given.reference_psd is None else given.reference_psd
    taps = -read.fir if read.sign == "plus" else read.fir
    if taps.any():
        check_effect(taps, given)
    target = read.target.as_target()
    work = work_of(target)
    call.charge(work)
    if target.keeps(N_TAPS) and "max_gain_db" in read.model_fields_set:
        excess = excess_db(taps, ceiling_db(read.max_gain_db, DESIGN_N_FFT))
        if excess > TOLERANCE_DB:
            found = f"max_gain_db: `fir`, which these taps keep, is {excess:.1f} dB above it"
            what = "design it under this ceiling, or leave max_gain_db out"
            raise HttpProblem("invalid-field", f"{found}; {what}", "max_gain_db")
    call.decoded()
    conditions = [
        PathSpectra(spectrum(each.primary), spectrum(each.secondary), each.weight)
        for each in with_latency(given).conditions
    ]

    def run() -> Realised:
        return realise(conditions, psd, target, taps=taps, max_gain_db=read.max_gain_db)

    realised = await call.service.exports.run(run, call.due, call.disconnected, work)
    if taps.any() and not realised.response.any():
        found = (
            f"fir: {target.number_format} rounds all taps to zero; use more fraction bits, or send a louder filter"
        )
        raise HttpProblem("invalid-field", found, "fir")
    loop = loop_of(with_latency(given).conditions, lambda feedback: spectrum(feedback) * realised.response)
    response = realised.response.astype(np.complex64)
    full, own = await call.evaluate(read.model, [given, given], [taps, response], is_continued=True)
    # The largest |W| is that of all frequencies at the hardware's rate, not of the design grid alone.
    prediction = replace(own.prediction, max_gain_db=realised.max_gain_db)
    if read.file is not None:
        content, media_type, name = await asyncio.to_thread(
            filter_files.write, _signed(realised, read.sign), read.file, read.sign
        )
        return Response(
            content, media_type=media_type, headers={"Content-Disposition": f'attachment; filename="{name}"'}
        )
    document = {
        "coefficients": coefficients_document(_signed(realised, read.sign)),
        "prediction": prediction_document(prediction),
        "loss_db": full.prediction.mean_noise_reduction_db - prediction.mean_noise_reduction_db,
        "warnings": collect_warnings(
            [path for each in read.conditions for path in (each.primary, each.secondary)],
            given,
            prediction,
            implausible=full.implausible + unlike_filter(full.prediction, prediction),
            loop=loop,
        ),
        "sign": read.sign,
    } | loop_document(loop)
    content, times = with_times(document, own.times_ms, call)
    return timed_response(content, times)


def _signed(realised: Realised, sign: str) -> Realised:
    """For `plus`, the negated filter: taps, or the first section's numerator."""
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
    """The `coefficients` of an answer."""
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
