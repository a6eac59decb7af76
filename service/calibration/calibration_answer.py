"""From takes to the answer: paths, coherence and a verdict, in a form that `/refine` accepts unchanged."""

from __future__ import annotations

import base64
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import orjson
import safetensors.numpy
from numpy.typing import NDArray

from measurement.calibration import Calibration, calibrate
from measurement.checks import Verdict, judge
from measurement.estimate import GainTake, PlayedTake
from model_store.store import ModelVersion
from service.api.json_answers import BAND_CENTRE_HZ, dumped, model_document
from service.calibration.takes import CalibrationBody, DriveRecording, ProbeTake
from synthesis.conventions import DESIGN_N_FFT, SAMPLE_RATE_HZ
from synthesis.types import Float32, ModelParameters


@dataclass(frozen=True, eq=False)
class JudgedCalibration:
    """A calibration with its verdict."""

    calibration: Calibration
    verdict: Verdict
    # Model whose support the paths were compared with.
    judged_by: ModelVersion

    @property
    def primary(self) -> Float32:
        """Return the impulse response [8192]."""
        return _float32(self.calibration.estimate.primary)

    @property
    def secondary(self) -> Float32:
        """Return the impulse response [2048]."""
        return _float32(self.calibration.secondary)

    @property
    def feedback(self) -> Float32 | None:
        """Return the impulse response [2048], if the loudspeaker was driven alone."""
        feedback = self.calibration.feedback
        return None if feedback is None else _float32(feedback)

    @property
    def coherence(self) -> Float32:
        """Return the coherence per bin of the design grid, 0 to 1: [16385]."""
        return _float32(self.calibration.estimate.coherence)

    @property
    def uncertainty(self) -> Float32 | None:
        """Return the uncertainty of the primary path in 31 bands, then of the secondary path: [62]; None if unknown."""
        known = self.calibration.uncertainty
        return None if known is None else _float32(known.ravel())


# A model and its parameters, for comparison with its support and for its prior.
Judge = tuple[ModelVersion, ModelParameters]


def calibrate_recordings(body: CalibrationBody, find_model: Callable[[str | None], Judge]) -> JudgedCalibration:
    """Estimate and judge recordings, which takes some tenths of a second.

    Parameters
    ----------
    body
        Recordings, with the reference of a model or None.
    find_model
        Returns the model of a reference; for None the default one.

    Returns
    -------
    JudgedCalibration
        The paths with their verdict.

    Raises
    ------
    SynthesisError
        As `calibrate`.
    ModelStoreError
        As `find_model`.
    """
    version, model = find_model(body.model)
    # With the sign plus, a gain g plays what the convention calls -g.
    direction = 1.0 if body.sign == "minus" else -1.0
    named = {f"takes.{n}": take for n, take in enumerate(body.takes)}
    calibration = calibrate(
        [
            GainTake(direction * take.gain, take.x, take.e, name)
            for name, take in named.items()
            if isinstance(take, ProbeTake)
        ],
        body.n_windows,
        prior=model.path_prior,
        support=model.support,
        drives=[
            PlayedTake(take.drive, take.x, take.e, name)
            for name, take in named.items()
            if isinstance(take, DriveRecording)
        ],
        clipped_shares={
            f"{name}, {signal}": share
            for name, take in named.items()
            for signal, share in take.clipped_share.items()
        },
    )
    verdict = judge(calibration, model.support)
    return JudgedCalibration(calibration, verdict, version)


def as_json(judged: JudgedCalibration, body: CalibrationBody) -> bytes:
    """Encode the JSON answer without its times."""
    document: dict[str, Any] = {
        "primary": {"impulse_response": judged.primary},
        "secondary": {"impulse_response": judged.secondary},
        "sample_rate": SAMPLE_RATE_HZ,
        "sign": body.sign,
        "coherence": judged.coherence,
        "spectra": {"primary": _spectrum(judged.primary), "secondary": _spectrum(judged.secondary)},
        "bands": {
            "centre_hz": BAND_CENTRE_HZ,
            "coherence": _float32(judged.calibration.coherence),
            "noise_reduction_ceiling_db": _float32(judged.calibration.noise_reduction_ceiling_db),
            "secondary_snr_db": _float32(judged.calibration.secondary_snr_db),
        },
        "verdict": verdict_document(judged),
    }
    if judged.uncertainty is not None:
        document["uncertainty"] = judged.uncertainty
    if judged.feedback is not None:
        document["feedback"] = {"impulse_response": judged.feedback}
    if body.model is not None:
        document["model"] = body.model
    return dumped(document)


def as_tensors(judged: JudgedCalibration, body: CalibrationBody) -> tuple[bytes, dict[str, str]]:
    """Encode the binary answer, a body that `/refine` takes, and the header that represents the verdict."""
    found = {
        "primary": judged.primary,
        "secondary": judged.secondary,
        "coherence": judged.coherence,
        "uncertainty": None if judged.uncertainty is None else judged.uncertainty.reshape(2, -1),
        "feedback": judged.feedback,
    }
    arrays = {name: array for name, array in found.items() if array is not None}
    model = {} if body.model is None else {"model": body.model}
    request = {"sample_rate": SAMPLE_RATE_HZ, "sign": body.sign, **model}
    reasons = ", ".join(reason.code for reason in judged.verdict.reasons)
    content = safetensors.numpy.save(arrays, {"request": orjson.dumps(request).decode()})
    return content, {"X-Verdict": reasons or "passed"}


def verdict_document(judged: JudgedCalibration) -> dict[str, Any]:
    """Return the `verdict` of an answer."""
    calibration, verdict, compared = judged.calibration, judged.verdict, judged.verdict.explanation
    return {
        "passed": verdict.passed,
        "reasons": [asdict(finding) for finding in verdict.reasons],
        "not_judged": [asdict(finding) for finding in verdict.not_judged],
        "model": model_document(judged.judged_by),
        "figures": {
            "clipped_share": calibration.clipped_share,
            "lead_samples": calibration.lead_samples,
            "noise_cost_db": verdict.noise_cost_db,
            "level_db": None if compared is None else compared.level_db,
            "delay_samples": None if compared is None else compared.delay_samples,
            "distance": None if compared is None else compared.distance,
            "tail_db": calibration.tail_db,
            "window": calibration.window,
            "n_frames": calibration.n_frames,
        },
    }


def _spectrum(response: Float32) -> dict[str, str]:
    spectrum = np.fft.rfft(response, DESIGN_N_FFT).astype("<c8")
    return {"complex64": base64.b64encode(spectrum.tobytes()).decode()}


def _float32(values: NDArray[np.floating]) -> Float32:
    return values.astype(np.float32)
