"""Synthetic noises: drawn each by itself, as loud as recordings, and as different as places are."""

import numpy as np
import pytest

from training.datasets.noise import N_SAMPLES, TARGET_RMS, NoiseSet
from training.datasets.synthetic_noise import AIRPLANE_HIGHEST_HZ, airplane_noise, synthetic_noise

N = 24


@pytest.fixture(scope="module")
def noises() -> NoiseSet:
    return synthetic_noise(N, 5)


def power(signals: np.ndarray) -> np.ndarray:
    return np.abs(np.fft.rfft(signals)) ** 2


FREQUENCY_HZ = np.fft.rfftfreq(N_SAMPLES, 1 / 48_000)


def test_noises_have_common_level_and_seed(noises: NoiseSet) -> None:
    assert noises.signals.shape == (N, N_SAMPLES)
    assert noises.n_recordings == N
    assert noises.names[0] == "synthetic_00"
    np.testing.assert_allclose(np.sqrt(np.mean(noises.signals**2, axis=-1)), TARGET_RMS, rtol=1e-12)
    fewer = synthetic_noise(2, 5)
    np.testing.assert_array_equal(fewer.signals, noises.signals[:2])
    assert fewer.fingerprint != noises.fingerprint
    assert not np.allclose(synthetic_noise(1, 6).signals, noises.signals[:1])


def test_spectra_lines_band_and_level_all_vary(noises: NoiseSet) -> None:
    spectra = power(noises.signals)
    low, high = ((edge <= FREQUENCY_HZ) & (2 * edge > FREQUENCY_HZ) for edge in (125, 1000))
    tilt_db = 10 * np.log10(spectra[:, low].sum(-1) / spectra[:, high].sum(-1))
    assert tilt_db.std() > 5
    empty = spectra[:, FREQUENCY_HZ > 12_000].sum(-1) < 1e-6 * spectra.sum(-1)
    assert 0.15 < empty.mean() < 0.85
    # A line holds in one bin what a band of noise spreads over its thousands.
    has_line = spectra.max(-1) > 0.02 * spectra.sum(-1)
    assert 0.2 < has_line.mean() < 0.8
    levels = np.sqrt(np.mean(noises.signals.reshape(N, 48, -1) ** 2, axis=-1))
    spread_db = (20 * np.log10(levels)).std(-1)
    assert spread_db.max() > 4 * spread_db.min()


def test_airplane_has_nothing_above_edge() -> None:
    noise = airplane_noise(0)
    spectrum = power(noise)
    above = FREQUENCY_HZ > AIRPLANE_HIGHEST_HZ + 100
    # Its level varies, slowly: what that spreads beyond the edge is far below any quantisation.
    assert spectrum[above].sum() < 1e-9 * spectrum.sum()
    assert spectrum[(FREQUENCY_HZ > 4000) & ~above].sum() > 1e-5 * spectrum.sum()
