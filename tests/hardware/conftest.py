"""Paths that realisations are designed for: a smooth simulated ear, and measured ears."""

import numpy as np
import pytest

from prime_anc.hardware.residual_power import PathSpectra
from prime_anc.method.conventions import DESIGN_N_FFT, N_BINS
from tests.oracles.measured import MeasuredEar

# A reference spectrum that falls by 3 dB an octave.
PINK = 1 / np.maximum(np.arange(N_BINS), 10.0)


def simulated(seed: int = 0) -> PathSpectra:
    """A low-pass primary and a high-pass secondary path with a few resonances, in impulse responses of 600
    samples."""
    random = np.random.default_rng(seed)
    time = np.arange(600)
    primary = sum(
        random.standard_normal() * np.exp(-time / decay) * np.cos(2 * np.pi * hz / 48_000 * time)
        for hz, decay in ((60, 200), (300, 90), (1500, 30), (4000, 12))
    )
    secondary = np.exp(-time / 8) * np.cos(2 * np.pi * 900 / 48_000 * time) + 0.3 * np.exp(-time / 60) * np.cos(
        2 * np.pi * 120 / 48_000 * time
    )
    secondary = np.diff(np.concatenate(([0.0, 0.0], secondary[:-1])))
    return PathSpectra(*(np.fft.rfft(item, DESIGN_N_FFT) for item in (primary, secondary)))


@pytest.fixture
def condition() -> PathSpectra:
    """One simulated ear."""
    return simulated()


@pytest.fixture
def pink() -> np.ndarray:
    """That reference spectrum."""
    return PINK


@pytest.fixture(scope="session")
def measured(ears: list[MeasuredEar], measured_psd: np.ndarray) -> tuple[list[PathSpectra], np.ndarray]:
    """True paths of the measured ears, and the recordings' mean spectrum."""
    paths = ([np.fft.rfft(path, DESIGN_N_FFT) for path in (ear.primary, ear.secondary)] for ear in ears)
    return [PathSpectra(*pair) for pair in paths], measured_psd
