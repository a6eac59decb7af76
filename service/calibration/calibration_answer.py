"""From takes to the answer: paths, coherence and a verdict, in a form that `/refine` accepts unchanged."""

from __future__ import annotations

import base64
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import orjson
import safetensors.numpy
from numpy.typing import NDArray

from model_store.store import ModelVersion
from prime_anc.measure.calibration import Calibration, calibrate
from prime_anc.measure.checks import Verdict, judge
from prime_anc.method.bands import BAND_CENTRE_HZ
from prime_anc.method.conventions import DESIGN_N_FFT, SAMPLE_RATE_HZ
from prime_anc.method.types import Float32, ModelParameters
from service.api.json_answers import dumped, model_document
from service.calibration.takes import CalibrationBody

# Arrays of a calibration that are impulse responses.
PATHS = ("primary", "secondary", "feedback")


@dataclass(frozen=True, eq=False)
class JudgedCalibration:
    """A calibration with its verdict."""

    calibration: Calibration
    verdict: Verdict
    # Model whose support the paths were compared with.
    judged_by: ModelVersion

    @property
    def arrays(self) -> dict[str, Float32]:
        """Return primary path [8192], secondary path [4096], coherence [16385], uncertainty [62] and, if known,
        feedback path [4096].
        """
        known = self.calibration
        found = {
            "primary": known.estimate.primary,
            "secondary": known.estimate.secondary,
            "coherence": known.estimate.coherence,
            "uncertainty": known.uncertainty.ravel(),
            "feedback": known.feedback,
        }
        return {name: _float32(array) for name, array in found.items() if array is not None}


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
    takes = body.takes
    calibration = calibrate(
        [replace(take, gain=direction * take.gain) for take in takes.probes],
        body.n_windows,
        prior=model.path_prior,
        support=model.support,
        drives=takes.drives,
        clipped_shares=takes.clipped_shares,
    )
    verdict = judge(calibration, model.support)
    return JudgedCalibration(calibration, verdict, version)


def as_json(judged: JudgedCalibration, body: CalibrationBody) -> bytes:
    """Encode the JSON answer without its times."""
    arrays = judged.arrays
    document: dict[str, Any] = {
        "sample_rate": SAMPLE_RATE_HZ,
        "sign": body.sign,
        **{name: {"impulse_response": array} if name in PATHS else array for name, array in arrays.items()},
        "spectra": {name: _spectrum(arrays[name]) for name in ("primary", "secondary")},
        "bands": {
            "centre_hz": BAND_CENTRE_HZ,
            "coherence": _float32(judged.calibration.coherence),
            "noise_reduction_ceiling_db": _float32(judged.calibration.noise_reduction_ceiling_db),
            "secondary_snr_db": _float32(judged.calibration.secondary_snr_db),
        },
        "verdict": verdict_document(judged),
    }
    if body.model is not None:
        document["model"] = body.model.partition(":")[0]
    return dumped(document)


def as_tensors(judged: JudgedCalibration, body: CalibrationBody) -> tuple[bytes, dict[str, str]]:
    """Encode the binary answer, a body that `/refine` takes, and the header that represents the verdict."""
    arrays = judged.arrays
    if "uncertainty" in arrays:
        arrays["uncertainty"] = arrays["uncertainty"].reshape(2, -1)
    model = {} if body.model is None else {"model": body.model.partition(":")[0]}
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
