"""Recordings and result of a calibration."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

Sign = Literal["minus", "plus"]


class Take(NamedTuple):
    """A recording of both microphones at 48 kHz, 3072 to 2880000 real samples."""

    # Gain in place of the control filter; 0 with the loudspeaker off.
    gain: float
    # Reference microphone, [n].
    x: ArrayLike
    # Error microphone, [n].
    e: ArrayLike


class DriveTake(NamedTuple):
    """A recording while the loudspeaker plays `drive` alone, which also yields the feedback path."""

    # Loudspeaker signal, after any inversion of the chain, [n].
    drive: ArrayLike
    # As in `Take`.
    x: ArrayLike
    # As in `Take`.
    e: ArrayLike


class FindingResult(NamedTuple):
    """A finding of the service."""

    # Stable name (`clipping`).
    code: str
    # Fault and remedy.
    detail: str


@dataclass(frozen=True, eq=False)
class Bands:
    """Values for 23 one-third-octave bands, 50 Hz to 8 kHz, float32 [23]."""

    # Nominal centres.
    centre_hz: NDArray[np.float32]
    # 0 to 1.
    coherence: NDArray[np.float32]
    # Noise reduction that the coherence allows.
    noise_reduction_ceiling_db: NDArray[np.float32]
    # Secondary path over the noise of its estimate.
    secondary_snr_db: NDArray[np.float32]


@dataclass(frozen=True)
class VerdictResult:
    """Verdict on a calibration."""

    # Whether there is no reason against it.
    passed: bool
    reasons: tuple[FindingResult, ...]
    # Checks that could not be made.
    not_judged: tuple[FindingResult, ...]
    # Measured quantities by name; None if not computable.
    figures: dict[str, float | None]


@dataclass(frozen=True, eq=False)
class CalibrationResult:
    """Estimated paths of one ear; `Client.refine` and `Client.synthesize` take it instead of two paths."""

    # Impulse response at 48 kHz, float32 [8192].
    primary: NDArray[np.float32]
    # Impulse response at 48 kHz, float32 [4096].
    secondary: NDArray[np.float32]
    # Per bin of the design grid, float32 [16385].
    coherence: NDArray[np.float32]
    # Unknown over known power for predictions, float32 [62]; None if not computable.
    uncertainty: NDArray[np.float32]
    # Sign of the signal chain, as given.
    sign: Sign
    bands: Bands
    verdict: VerdictResult
    # Path from loudspeaker to outer microphone, float32 [4096], from takes with `drive`.
    feedback: NDArray[np.float32] | None = None


def read_calibration(document: dict[str, Any]) -> CalibrationResult:
    """Read an answer of `/calibrate`."""
    verdict = document["verdict"]
    return CalibrationResult(
        primary=_float32(document["primary"]["impulse_response"]),
        secondary=_float32(document["secondary"]["impulse_response"]),
        coherence=_float32(document["coherence"]),
        uncertainty=_float32(document["uncertainty"]),
        sign=document["sign"],
        bands=Bands(**{name: _float32(values) for name, values in document["bands"].items()}),
        verdict=VerdictResult(
            passed=verdict["passed"],
            reasons=read_findings(verdict["reasons"]),
            not_judged=read_findings(verdict["not_judged"]),
            figures=verdict["figures"],
        ),
        feedback=_float32(document["feedback"]["impulse_response"]) if "feedback" in document else None,
    )


def read_findings(found: Sequence[dict[str, str]]) -> tuple[FindingResult, ...]:
    """Read `reasons`, `not_judged` or `diagnosis`."""
    return tuple(FindingResult(item["code"], item["detail"]) for item in found)


def _float32(values: Sequence[float]) -> NDArray[np.float32]:
    return np.array(values, np.float32)
