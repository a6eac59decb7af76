"""J of a filter for all conditions of a problem, in float64 on the design grid, without the penalty on |W|."""

import numpy as np

from prime_anc.method.bands import WIDE_BANDS
from prime_anc.method.conventions import DESIGN_N_FFT
from prime_anc.method.objective import objective
from prime_anc.method.posing import OpenLoop
from prime_anc.method.profiles import SILENCE
from tests.oracles.octave_bands import band_sums


def objective_of(problem: OpenLoop, taps: np.ndarray, profile_name: str = "fast") -> float:
    """Evaluate theory (12) and (13)."""
    psd, response = problem.reference_psd.astype(float), np.fft.rfft(taps.astype(float), DESIGN_N_FFT)
    ratios = []
    for primary, secondary, (of_primary, of_secondary) in zip(
        problem.primary, problem.secondary, problem.uncertainty.astype(float), strict=True
    ):
        played = secondary * response
        powers = (psd * np.abs(item) ** 2 for item in (primary, primary - played, played))
        before, after, control = (band_sums(WIDE_BANDS, item) for item in powers)
        known = before + of_primary * before + SILENCE * before.sum()
        ratios.append((after + of_primary * before + of_secondary * control + SILENCE * before.sum()) / known)
    return float(objective(np.log(ratios), problem.shares, problem.profile(profile_name))[0])
