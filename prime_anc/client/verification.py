"""Recordings and result of a verification."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from prime_anc.client.calibration import FindingResult, read_findings


class Recording(NamedTuple):
    """Both microphones at 48 kHz, real [n], at least 36864 samples: reference x, error e."""

    x: ArrayLike
    e: ArrayLike


@dataclass(frozen=True, eq=False)
class Trim:
    """The filter adapted to the secondary path as it is now, by this gain, delay and polarity."""

    gain_db: float
    delay_samples: float
    is_inverted: bool
    noise_reduction_db: float
    # None for sections and taps of a chip: change their gain and delay.
    taps: NDArray[np.float32] | None
    # Controller whose loop is as designed, a valid `controller` of requests; None if none runs.
    controller: dict[str, Any] | None


@dataclass(frozen=True, eq=False)
class VerificationResult:
    """Measured effect of a filter."""

    # Measured mean.
    noise_reduction_db: float
    # Per band, float32 [23].
    band_noise_reduction_db: NDArray[np.float32]
    # Half-width of the 80 % interval of the mean; None if a state has one block of 0.8 s.
    interval_db: float | None
    # Half-width of the interval of the predicted mean.
    predicted_interval_db: float
    # Measured less predicted mean.
    deviation_db: float
    # `as_predicted`, or the deviations.
    diagnosis: tuple[FindingResult, ...]
    # Trimmed filter; None if no gain and delay would correct it.
    trim: Trim | None


def read_verification(found: dict[str, Any]) -> VerificationResult:
    """Read an answer of `/verify`."""
    measured, trim = found["measured"], found["trim"]
    return VerificationResult(
        noise_reduction_db=measured["mean_noise_reduction_db"],
        band_noise_reduction_db=np.array(measured["noise_reduction_db"], np.float32),
        interval_db=measured["interval_db"],
        predicted_interval_db=found["predicted_interval_db"],
        deviation_db=found["deviation_db"],
        diagnosis=read_findings(found["diagnosis"]),
        trim=None
        if trim is None
        else Trim(
            trim["gain_db"],
            trim["delay_samples"],
            trim["invert"],
            trim["predicted_noise_reduction_db"],
            None if trim["fir"] is None else np.array(trim["fir"], np.float32),
            trim.get("controller"),
        ),
    )
