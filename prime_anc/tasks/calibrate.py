"""Estimate paths from recordings, and judge them."""

from __future__ import annotations

import base64
from dataclasses import asdict, replace
from time import perf_counter

import numpy as np
from numpy.typing import NDArray

from prime_anc.answers import (
    CalibrationAnswer,
    CalibrationBands,
    CalibrationTimings,
    Complex64Spectrum,
    FindingAnswer,
    ModelReference,
    PrimaryResponse,
    SecondaryResponse,
    Spectra,
    VerdictAnswer,
    VerdictFigures,
)
from prime_anc.measure import calibration as measurement
from prime_anc.measure.calibration import Calibration
from prime_anc.measure.checks import Verdict, judge
from prime_anc.method.bands import BAND_CENTRE_HZ
from prime_anc.method.conventions import DESIGN_N_FFT, SAMPLE_RATE_HZ
from prime_anc.method.types import Float32, ModelParameters
from prime_anc.requests.takes import CalibrationBody


def calibrate(body: CalibrationBody, reference: ModelReference, parameters: ModelParameters) -> CalibrationAnswer:
    """Estimate paths from recordings and judge them.

    Parameters
    ----------
    body
        The recordings.
    reference, parameters
        Model whose prior and support are used.

    Raises
    ------
    SynthesisError
        As `prime_anc.measure.calibration.calibrate`.
    """
    began = perf_counter()
    # With the sign plus, a gain g plays what the convention calls -g.
    direction = 1.0 if body.sign == "minus" else -1.0
    takes = body.takes
    known = measurement.calibrate(
        [replace(take, gain=direction * take.gain) for take in takes.probes],
        body.n_windows,
        prior=parameters.path_prior,
        support=parameters.support,
        drives=takes.drives,
        clipped_shares=takes.clipped_shares,
    )
    estimate = known.estimate
    primary, secondary = _float32(estimate.primary), _float32(estimate.secondary)
    return CalibrationAnswer(
        primary=PrimaryResponse(impulse_response=primary),
        secondary=SecondaryResponse(impulse_response=secondary),
        sample_rate=SAMPLE_RATE_HZ,
        sign=body.sign,
        coherence=_float32(estimate.coherence),
        uncertainty=_float32(known.uncertainty.ravel()),
        feedback=None if known.feedback is None else SecondaryResponse(impulse_response=_float32(known.feedback)),
        spectra=Spectra(primary=_spectrum(primary), secondary=_spectrum(secondary)),
        bands=CalibrationBands(
            centre_hz=np.array(BAND_CENTRE_HZ),
            coherence=_float32(known.coherence),
            noise_reduction_ceiling_db=_float32(known.noise_reduction_ceiling_db),
            secondary_snr_db=_float32(known.secondary_snr_db),
        ),
        verdict=_verdict_answer(known, judge(known, parameters.support), reference),
        timings_ms=CalibrationTimings(
            queue=0.0, decode=0.0, estimate=1e3 * (perf_counter() - began), encode=0.0, total=0.0
        ),
        model=None if body.model is None else body.model.partition(":")[0],
    )


def _verdict_answer(known: Calibration, verdict: Verdict, reference: ModelReference) -> VerdictAnswer:
    compared = verdict.explanation
    return VerdictAnswer(
        passed=verdict.passed,
        reasons=[FindingAnswer(**asdict(finding)) for finding in verdict.reasons],
        not_judged=[FindingAnswer(**asdict(finding)) for finding in verdict.not_judged],
        model=reference,
        figures=VerdictFigures(
            clipped_share=known.clipped_share,
            lead_samples=known.lead_samples,
            noise_cost_db=verdict.noise_cost_db,
            level_db=None if compared is None else compared.level_db,
            delay_samples=None if compared is None else compared.delay_samples,
            distance=None if compared is None else compared.distance,
            tail_db=known.tail_db,
            window=known.window,
            n_frames=known.n_frames,
        ),
    )


def _spectrum(response: Float32) -> Complex64Spectrum:
    spectrum = np.fft.rfft(response, DESIGN_N_FFT).astype("<c8")
    return Complex64Spectrum(complex64=base64.b64encode(spectrum.tobytes()).decode())


def _float32(values: NDArray[np.floating]) -> Float32:
    return values.astype(np.float32)
