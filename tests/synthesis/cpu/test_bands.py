"""Sums over contiguous bins against the matrix of bands."""

import numpy as np
import pytest
import torch

from synthesis import spectra
from synthesis.cpu.bands import BandSums, collected
from synthesis.noise_reduction import HIGH_BANDS
from synthesis.octave_bands import AMP_BANDS, WIDE_BANDS, band_matrix


@pytest.mark.parametrize("n_fft", [4096, 8192, 32_768])
@pytest.mark.parametrize("bands", [WIDE_BANDS, AMP_BANDS, HIGH_BANDS])
def test_sums_and_spreads_are_the_matrix_products(bands: tuple[int, ...], n_fft: int) -> None:
    membership = band_matrix(bands, n_fft).numpy()
    sums = BandSums(bands, n_fft)
    power = np.random.default_rng(0).random(n_fft // 2 + 1).astype(np.float32)
    # Up to 5000 positive terms in single precision.
    np.testing.assert_allclose(sums.sums(power), power.astype(np.float64) @ membership, rtol=1e-5)
    values = np.arange(1.0, len(bands) + 1)
    spread = np.zeros(n_fft // 2 + 1)
    spread[sums.bins] = sums.spread(values)
    np.testing.assert_array_equal(spread, membership @ values)


def test_a_band_without_a_bin_sums_to_nothing() -> None:
    sums = BandSums(WIDE_BANDS, 4096)  # 11.7 Hz apart: none between 17.8 and 22.4 Hz
    found = sums.sums(np.ones(2049, np.float32))
    empty = band_matrix(WIDE_BANDS, 4096).numpy().sum(0) == 0
    assert empty.any()
    assert (found[empty] == 0).all()
    assert (found[~empty] > 0).all()


@pytest.mark.parametrize("stride", [2, 4, 8])
def test_collected_power_is_the_references(stride: int) -> None:
    power = np.random.default_rng(0).random(16_385).astype(np.float32)
    kept = power.copy()
    expected = spectra.collected(torch.from_numpy(power).double(), stride).numpy()
    np.testing.assert_allclose(collected(power, stride), expected, rtol=1e-6)
    assert np.array_equal(power, kept)
