"""The answer of a verification."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from prime_anc_client.calibration import FindingResult, read_findings


class Recording(NamedTuple):
    """Both microphones at 48 kHz, [n], real, at least 36864 samples. x: reference, e: error microphone."""

    x: ArrayLike
    e: ArrayLike


@dataclass(frozen=True, eq=False)
class Trim:
    """The filter for the secondary path as it is now. gain_db, delay_samples, is_inverted: what was changed."""

    gain_db: float
    delay_samples: float
    is_inverted: bool
    noise_reduction_db: float
    taps: NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class VerificationResult:
    """What a filter does on the ear.

    noise_reduction_db: measured mean; band_noise_reduction_db: per band, float32 [23]. interval_db: half-width of
    the 80 % interval of the mean. deviation_db: measured less predicted mean. diagnosis: `as_predicted`, or what is
    off. trim: None where no gain and delay put it right: measure again.
    """

    noise_reduction_db: float
    band_noise_reduction_db: NDArray[np.float32]
    interval_db: float
    deviation_db: float
    diagnosis: tuple[FindingResult, ...]
    trim: Trim | None


def read_verification(found: dict[str, Any]) -> VerificationResult:
    """From an answer of `/verify`."""
    measured, trim = found["measured"], found["trim"]
    return VerificationResult(
        noise_reduction_db=measured["mean_noise_reduction_db"],
        band_noise_reduction_db=np.array(measured["noise_reduction_db"], np.float32),
        interval_db=measured["interval_db"],
        deviation_db=found["deviation_db"],
        diagnosis=read_findings(found["diagnosis"]),
        trim=None
        if trim is None
        else Trim(
            trim["gain_db"],
            trim["delay_samples"],
            trim["invert"],
            trim["predicted_noise_reduction_db"],
            np.array(trim["fir"], np.float32),
        ),
    )
