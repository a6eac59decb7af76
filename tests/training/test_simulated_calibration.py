"""The simulated calibration, against the true paths."""

import pytest
import torch

from training.datasets.noise import NoiseSet, simulated_noise
from training.datasets.path_pairs import DatasetError, PathPair
from training.datasets.simulated import simulate_listeners
from training.simulated_calibration import SimulatedEstimate, simulate_calibration


@pytest.fixture(scope="module")
def noise_set() -> NoiseSet:
    return simulated_noise(0)


@pytest.fixture(scope="module")
def pairs() -> tuple[PathPair, ...]:
    return simulate_listeners(2).pairs


def test_estimate_is_true_path_without_noise(pairs: tuple[PathPair, ...], noise_set: NoiseSet) -> None:
    """The early part, where the probes have power; windows leave an error that falls with the path."""
    found = simulate_calibration(pairs[:1], noise_set)
    for estimate, path in ((found.primary, pairs[0].primary), (found.secondary, pairs[0].secondary)):
        bins = slice(20, 1000)
        spectra = [torch.fft.rfft(item[:2048], n=16_384)[bins] for item in (estimate[0], torch.from_numpy(path))]
        assert torch.linalg.norm(spectra[0] - spectra[1]) < 0.05 * torch.linalg.norm(spectra[1])


def test_noise_of_pair_is_its_own(pairs: tuple[PathPair, ...], noise_set: NoiseSet) -> None:
    together = simulate_calibration(pairs, noise_set, probes=[0, 3], snr_db=20.0)
    for place in (0, 3):
        alone = simulate_calibration([pairs[place]], noise_set, probes=[0, 3], snr_db=20.0)
        for name in ("primary", "secondary", "coherence"):
            found, expected = getattr(together, name)[place : place + 1], getattr(alone, name)
            torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


def test_measurement_noise_has_requested_level(pairs: tuple[PathPair, ...], noise_set: NoiseSet) -> None:
    clean = simulate_calibration(pairs[:1], noise_set)
    noisy = simulate_calibration(pairs[:1], noise_set, snr_db=20.0, seed=1)
    again = simulate_calibration(pairs[:1], noise_set, snr_db=20.0, seed=1)
    assert torch.equal(noisy.primary, again.primary)
    other = simulate_calibration(pairs[:1], noise_set, snr_db=20.0, seed=2)
    assert not torch.equal(noisy.primary, other.primary)

    def error_db(estimate: SimulatedEstimate) -> float:
        return float(10 * torch.log10((estimate.primary - clean.primary).square().sum()))

    # The estimate is linear in the error signal: 20 dB more noise, 20 dB more error.
    louder = simulate_calibration(pairs[:1], noise_set, snr_db=0.0, seed=1)
    assert error_db(louder) - error_db(noisy) == pytest.approx(20, abs=0.01)
    # The states' noises do not cancel in e_0 - e_g: independent, they add up in power.
    in_primary = torch.fft.rfft(louder.primary - clean.primary, n=16384).abs().square()[:, 300:1500]
    in_secondary = torch.fft.rfft(louder.secondary - clean.secondary, n=16384).abs().square()[:, 300:1500]
    per_sample = float(in_secondary.mean() / 2048 / (in_primary.mean() / 8192))
    assert per_sample > 1 / 0.35**2
    assert float(louder.coherence.mean()) < float(noisy.coherence.mean()) < float(clean.coherence.mean())


def test_take_without_window_is_rejected(pairs: tuple[PathPair, ...], noise_set: NoiseSet) -> None:
    with pytest.raises(DatasetError, match="window of 200000 samples in takes of 192000"):
        simulate_calibration(pairs, noise_set, window=200_000)
