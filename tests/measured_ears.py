"""Cases for the tests of the core: every measured ear with its simulated calibration, read once a session."""

from pathlib import Path

import numpy as np
import pytest

from tests.oracles import measured
from tests.synthesis.cases import Case, random_case


@pytest.fixture(scope="session")
def ears(measured_data: Path) -> list[measured.MeasuredEar]:
    """Every measured ear with noise-free estimates."""
    return measured.measured_ears(measured_data)


@pytest.fixture(scope="session")
def measured_psd(measured_data: Path) -> np.ndarray:
    """Mean square per bin of the measured noises, white and pink: [16385]."""
    return measured.reference_psd(measured.read_noises(measured_data))


@pytest.fixture(scope="session")
def measured_case(ears: list[measured.MeasuredEar], measured_psd: np.ndarray) -> Case:
    """The estimated paths of every ear on the design grid."""
    return Case(
        np.fft.rfft([ear.estimated_primary for ear in ears], measured.N_FFT),
        np.fft.rfft([ear.estimated_secondary for ear in ears], measured.N_FFT),
        measured_psd,
    )


@pytest.fixture(scope="session")
def true_case(ears: list[measured.MeasuredEar], measured_psd: np.ndarray) -> Case:
    """The true paths of every ear on the design grid."""
    return Case(
        np.fft.rfft([ear.primary for ear in ears], measured.N_FFT),
        np.fft.rfft([ear.secondary for ear in ears], measured.N_FFT),
        measured_psd,
    )


@pytest.fixture(scope="session")
def small_case() -> Case:
    """Three random pairs on a reduced grid."""
    return random_case()
