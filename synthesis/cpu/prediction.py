"""What a filter will do, for one ear (`synthesis.noise_reduction.predict`, `estimate_uncertainty`)."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from synthesis.conventions import DESIGN_N_FFT
from synthesis.cpu.bands import BandSums
from synthesis.cpu.refinement import squared
from synthesis.cpu.transforms import Complex, Real, RealTransform
from synthesis.estimate_uncertainty import LATE_FROM_SAMPLES, NO_LATE_PART, PLAUSIBLE_RANGE
from synthesis.noise_reduction import COHERENCE_FLOOR, HIGH_BANDS, LOW_BANDS, SILENCE, columns
from synthesis.octave_bands import AMP_BANDS, NR_BANDS, WIDE_BANDS

_TINY = float(np.finfo(np.float32).tiny)
_NR, _AMP, _LOW, _HIGH = (columns(bands) for bands in (NR_BANDS, AMP_BANDS, LOW_BANDS, HIGH_BANDS))


class Predictor:
    """Band powers with and without a filter on the design grid. For one thread."""

    def __init__(self) -> None:
        """Plans and bands."""
        self._transform = RealTransform(DESIGN_N_FFT)
        self._bands = BandSums(WIDE_BANDS, DESIGN_N_FFT)

    def disturbance(self, primary: Complex, psd: Real) -> tuple[Real, NDArray[np.float64]]:
        """Disturbance power per bin, and per band [31]."""
        power = squared(primary)
        power *= psd
        return power, self._bands.sums(power)

    def residual(
        self, primary: Complex, secondary: Complex, psd: Real, taps: Real
    ) -> tuple[NDArray[np.float64], float, float]:
        """Residual power per band, [31], the largest |W|^2 and the control signal's power."""
        response = self._transform.forward(taps)
        gain = squared(response)
        largest, power = float(gain.max()), float(psd @ gain)
        np.multiply(response, secondary, out=response)
        np.subtract(primary, response, out=response)
        left = squared(response)
        left *= psd
        return self._bands.sums(left), largest, power

    def unexplained(self, disturbance: Real, coherence: Real) -> NDArray[np.float64]:
        """Power per band that the estimate cannot explain, from the calibration's coherence: [31]. disturbance: per
        bin."""
        known = np.clip(coherence, np.float32(COHERENCE_FLOOR), 1)
        return self._bands.sums((1 - known) / known * disturbance)

    def expected_uncertainty(
        self, primary: Complex, psd: Real, disturbance: NDArray[np.float64], learned: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Unexplained over explained power to be expected without a coherence, [31]. disturbance: per band;
        learned: [2, 31]."""
        response = self._transform.inverse(primary)
        response[:LATE_FROM_SAMPLES] = 0
        late = squared(self._transform.forward(response))
        late *= psd
        share = self._bands.sums(late) / np.maximum(disturbance, _TINY)
        typical, per_share = learned
        most = typical * PLAUSIBLE_RANGE
        scaled = np.minimum(np.maximum(per_share * share, typical / PLAUSIBLE_RANGE), most)
        return np.where(share > NO_LATE_PART, scaled, typical)


def figures(disturbance: NDArray[np.float64], error: NDArray[np.float64], largest: float, power: float) -> Real:
    """The fields of `Prediction` side by side, [30], from the power in the 31 bands without and with the filter,
    the largest |W|^2 and the control signal's power."""
    floor = max(SILENCE * float(np.maximum.reduce(disturbance)), _TINY)
    disturbance, error = disturbance + floor, error + floor
    reduction = level_db(disturbance / error)
    louder = np.maximum(-reduction, 0)
    sums = np.add.reduce
    change = [sums(error[bands]) / sums(disturbance[bands]) for bands in (_LOW, _HIGH)]
    found = np.empty(len(AMP_BANDS) + 7, np.float32)
    found[: len(AMP_BANDS)] = reduction[_AMP]
    found[-7:] = (
        sums(reduction[_NR]) / len(NR_BANDS),
        sums(louder[_AMP]) / len(AMP_BANDS),
        sums(louder) / len(louder),
        *level_db(np.array([*change, largest])),
        math.sqrt(power),
    )
    return found


def level_db(ratio: NDArray[np.float64]) -> NDArray[np.float64]:
    """10 log10 of a power ratio, floored at single precision's smallest number."""
    level: NDArray[np.float64] = 10 * np.log10(np.maximum(ratio, _TINY))
    return level
