"""A calibration's recordings and its result."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

Sign = Literal["minus", "plus"]


class Take(NamedTuple):
    """A recording of both microphones at 48 kHz.

    gain: the plain gain that was used as the control filter, 0 with the loudspeaker off. x: reference microphone,
    e: error microphone, both [n], real, 3072 to 2880000 samples.
    """

    gain: float
    x: ArrayLike
    e: ArrayLike


class DriveTake(NamedTuple):
    """A recording while the loudspeaker plays `drive` alone, which gives the feedback path too.

    drive: what the loudspeaker plays, after any inversion of the chain. x, e: as in `Take`, as long as drive.
    """

    drive: ArrayLike
    x: ArrayLike
    e: ArrayLike


class FindingResult(NamedTuple):
    """code: a stable name (`clipping`). detail: what is wrong and what to do."""

    code: str
    detail: str


@dataclass(frozen=True, eq=False)
class Bands:
    """One value for each of 23 one-third-octave bands, 50 Hz to 8 kHz, float32 [23].

    centre_hz: nominal. coherence: 0 to 1. noise_reduction_ceiling_db: what it allows. secondary_snr_db: the
    secondary path over the noise of its estimate.
    """

    centre_hz: NDArray[np.float32]
    coherence: NDArray[np.float32]
    noise_reduction_ceiling_db: NDArray[np.float32]
    secondary_snr_db: NDArray[np.float32]


@dataclass(frozen=True)
class VerdictResult:
    """The service's judgement of a calibration.

    passed: whether there is no reason against it. not_judged: checks that could not be made. figures: the measured
    quantities by name; None where one could not be computed.
    """

    passed: bool
    reasons: tuple[FindingResult, ...]
    not_judged: tuple[FindingResult, ...]
    figures: dict[str, float | None]


@dataclass(frozen=True, eq=False)
class CalibrationResult:
    """One ear's estimated paths; `Client.refine` and `Client.synthesize` take it instead of two paths.

    primary, secondary: impulse responses at 48 kHz, float32 [8192] and [2048]. coherence: float32 [16385], per bin
    of the design grid. uncertainty: what predictions count as unknown, float32 [62]; None where that could not be
    told. feedback: loudspeaker to outer microphone, float32 [2048], from takes with `drive`. sign: of the signal
    chain, as given.
    """

    primary: NDArray[np.float32]
    secondary: NDArray[np.float32]
    coherence: NDArray[np.float32]
    uncertainty: NDArray[np.float32] | None
    sign: Sign
    bands: Bands
    verdict: VerdictResult
    feedback: NDArray[np.float32] | None = None


def read_calibration(document: dict[str, Any]) -> CalibrationResult:
    """From an answer of `/calibrate`."""
    verdict = document["verdict"]
    return CalibrationResult(
        primary=_float32(document["primary"]["impulse_response"]),
        secondary=_float32(document["secondary"]["impulse_response"]),
        coherence=_float32(document["coherence"]),
        uncertainty=_float32(document["uncertainty"]) if "uncertainty" in document else None,
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
    """From `reasons`, `not_judged` or `diagnosis`."""
    return tuple(FindingResult(item["code"], item["detail"]) for item in found)


def _float32(values: Sequence[float]) -> NDArray[np.float32]:
    return np.array(values, np.float32)
