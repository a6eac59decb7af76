"""Sub-bands against sums over all bins, and the objective's slopes against differences."""

from dataclasses import replace

import numpy as np
import pytest

from prime_anc.hardware.residual_power import PathSpectra, ResidualPower, centres_hz
from prime_anc.method.bands import WIDE_BANDS, band_membership
from prime_anc.method.conventions import DESIGN_N_FFT, SAMPLE_RATE_HZ


def smooth(frequency_hz: np.ndarray) -> np.ndarray:
    """A response that hardly changes within a sub-band."""
    return 0.8 * np.exp(-2j * np.pi * frequency_hz * 1e-5) / (1 + 1j * frequency_hz / 900)


@pytest.mark.parametrize("largest", [0.0, 1.0])
def test_expected_powers_match_sums_over_bins(condition, pink, largest):
    of_primary, of_secondary = largest * np.random.default_rng(1).uniform(0, 1, (2, len(WIDE_BANDS)))
    condition = replace(condition, uncertainty=np.stack((of_primary, of_secondary)))
    power = ResidualPower.of([condition], pink)
    found = power.in_bands(smooth(centres_hz()))[0]
    frequency_hz = np.arange(DESIGN_N_FFT // 2 + 1) * (SAMPLE_RATE_HZ / DESIGN_N_FFT)
    played = condition.secondary * smooth(frequency_hz)
    membership = band_membership(WIDE_BANDS, DESIGN_N_FFT)
    disturbance, left, control = (
        (pink * np.abs(item) ** 2) @ membership for item in (condition.primary, condition.primary - played, played)
    )
    # In the unit of `ResidualPower`, the disturbance of the weighed primary path.
    total = (disturbance / (1 + of_secondary)).sum()
    expected = (left + of_primary * disturbance + of_secondary * control) / total
    # W turns by a few hundredths of a radian from the middle of a sub-band to its edge.
    np.testing.assert_allclose(found, expected, rtol=2e-2)
    np.testing.assert_allclose(power.disturbance[0], (1 + of_primary) * disturbance / total, rtol=1e-9)


def test_scale_of_paths_does_not_matter(condition, pink):
    power = ResidualPower.of([condition], pink)
    scaled = ResidualPower.of([PathSpectra(condition.primary * 1e20, condition.secondary * 1e20)], pink)
    np.testing.assert_allclose(scaled.optimum, power.optimum, rtol=1e-9)
    np.testing.assert_allclose(scaled.curvature, power.curvature, rtol=1e-9)
