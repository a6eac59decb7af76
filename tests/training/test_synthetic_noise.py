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


def test_airplane_has_nothing_above_edge() -> None:
    noise = airplane_noise(0)
    spectrum = power(noise)
    above = FREQUENCY_HZ > AIRPLANE_HIGHEST_HZ + 100
    # Its level varies, slowly: what that spreads beyond the edge is far below any quantisation.
    assert spectrum[above].sum() < 1e-9 * spectrum.sum()
    assert spectrum[(FREQUENCY_HZ > 4000) & ~above].sum() > 1e-5 * spectrum.sum()
