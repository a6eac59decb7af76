"""Sub-bands against sums over all bins, and the objective's slopes against differences."""

import numpy as np

from hardware.residual_power import PathSpectra, ResidualPower, centres_hz
from synthesis.bands import WIDE_BANDS, band_membership
from synthesis.conventions import DESIGN_N_FFT, SAMPLE_RATE_HZ


def smooth(frequency_hz: np.ndarray) -> np.ndarray:
    """A response that hardly changes within a sub-band."""
    return 0.8 * np.exp(-2j * np.pi * frequency_hz * 1e-5) / (1 + 1j * frequency_hz / 900)


def test_band_powers_match_sum_over_bins(condition, pink):
    power = ResidualPower.of([condition], pink)
    found = power.in_bands(smooth(centres_hz()))[0]
    frequency_hz = np.arange(DESIGN_N_FFT // 2 + 1) * (SAMPLE_RATE_HZ / DESIGN_N_FFT)
    residual = condition.primary - condition.secondary * smooth(frequency_hz)
    membership = band_membership(WIDE_BANDS, DESIGN_N_FFT)
    expected = (pink * np.abs(residual) ** 2) @ membership
    disturbance = (pink * np.abs(condition.primary) ** 2) @ membership
    # W turns by a few hundredths of a radian from the middle of a sub-band to its edge.
    np.testing.assert_allclose(found, expected / disturbance.sum(), rtol=2e-2)


def test_scale_of_paths_does_not_matter(condition, pink):
    power = ResidualPower.of([condition], pink)
    scaled = ResidualPower.of([PathSpectra(condition.primary * 1e20, condition.secondary * 1e20)], pink)
    np.testing.assert_allclose(scaled.optimum, power.optimum, rtol=1e-9)
    np.testing.assert_allclose(scaled.curvature, power.curvature, rtol=1e-9)
