"""From a request's grid to the design grid: totals are kept, white stays white, nothing moves in frequency."""

import numpy as np
import pytest
import torch

from service.designs import Ear
from service.engine.grids import coherence_on_design_grid, path_spectrum, psd_on_design_grid
from service.formats.checks import GRIDS
from synthesis.conventions import DESIGN_N_FFT, N_BINS
from synthesis.cpu.transforms import RealTransform
from synthesis.errors import InvalidPaths
from tests.service.bodies import spectra

CPU = torch.device("cpu")


@pytest.mark.parametrize("n_fft", GRIDS)
def test_a_psd_keeps_its_mean_square_and_its_place(n_fft: int) -> None:
    n_bins = n_fft // 2 + 1
    draw = np.random.default_rng(n_fft)
    frequency = np.linspace(0, 1, n_bins)
    psd = ((1 + np.cos(9 * frequency)) * draw.uniform(0.5, 1.5, n_bins)).astype(np.float32)
    found = psd_on_design_grid(psd).numpy().astype(np.float64)
    assert found.sum() == pytest.approx(psd.sum(dtype=np.float64), rel=1e-6)
    assert found.min() >= 0
    for low, high in ((0.1, 0.2), (0.2, 0.5), (0.5, 0.9)):
        inside = (frequency >= low) & (frequency < high)
        design = np.linspace(0, 1, N_BINS)
        collected = found[(design >= low) & (design < high)].sum()
        assert collected == pytest.approx(psd[inside].sum(), rel=2 / inside.sum())


@pytest.mark.parametrize("n_fft", GRIDS)
def test_white_noise_stays_white(n_fft: int) -> None:
    """One-sided: 0 Hz and Nyquist hold half of what the other bins hold."""
    psd = np.full(n_fft // 2 + 1, 2.0, np.float32)
    psd[[0, -1]] = 1.0
    found = psd_on_design_grid(psd).numpy()
    level = 2.0 * (n_fft // 2) / (N_BINS - 1)
    assert np.allclose(found[1:-1], level, rtol=1e-5)
    assert np.allclose(found[[0, -1]], level / 2, rtol=1e-5)


def test_a_tone_between_the_design_grid_s_bins_is_not_lost() -> None:
    psd = np.zeros(32_769, np.float32)
    psd[2001] = 1.0
    found = psd_on_design_grid(psd)
    assert float(found.sum()) == pytest.approx(1.0)
    assert found.nonzero()[:, 0].tolist() == [1000, 1001]


@pytest.mark.parametrize("n_fft", GRIDS)
def test_coherence_is_interpolated_over_frequency(n_fft: int) -> None:
    found = coherence_on_design_grid(np.linspace(0.2, 1.0, n_fft // 2 + 1, dtype=np.float32))
    assert np.allclose(found.numpy(), np.linspace(0.2, 1.0, N_BINS), atol=1e-6)


@pytest.mark.parametrize("n_fft", GRIDS)
def test_paths_of_every_grid_are_the_same_responses(ear: Ear, n_fft: int) -> None:
    transform = RealTransform(DESIGN_N_FFT)
    reference = path_spectrum(ear.primary, "primary", transform)
    found = path_spectrum(spectra(ear, n_fft)[0], "primary", transform)
    assert reference.shape == found.shape == (N_BINS,)
    assert torch.allclose(found, reference, atol=1e-5 * float(reference.abs().max()))


def test_what_does_not_fit_names_its_path() -> None:
    late = np.zeros(65_536)
    late[[0, 40_000]] = 1.0
    with pytest.raises(InvalidPaths, match=r"^secondary: found -3.0 dB") as refused:
        path_spectrum(np.fft.rfft(late).astype(np.complex64), "secondary", RealTransform(DESIGN_N_FFT))
    assert refused.value.field == "secondary"
