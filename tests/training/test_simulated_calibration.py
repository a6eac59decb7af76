"""The simulated calibration, against whole convolutions and against the true paths."""

import pytest
import torch
from scipy.signal import fftconvolve

from prime_anc.measure.estimate import GainTake, estimate_paths
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


def assert_equal(first: SimulatedEstimate, second: SimulatedEstimate, atol: float = 0.0) -> None:
    for name in ("primary", "secondary", "coherence"):
        torch.testing.assert_close(getattr(first, name), getattr(second, name), rtol=0, atol=atol)


def whole_calibration(
    pair: PathPair, noise_set: NoiseSet, probes: range | list[int], window: int, **options: float
) -> SimulatedEstimate:
    """The slow way: four whole seconds convolved, then estimated."""
    takes = []
    for gain in (0.0, 0.35):
        for probe in probes:
            reference = noise_set.signals[probe, :192000]
            disturbance = fftconvolve(reference, pair.primary)[:192000]
            control = fftconvolve(reference, pair.secondary)[:192000]
            error = disturbance - gain * control
            takes.append(GainTake(gain, reference[None], error[None]))
    found = estimate_paths(takes, window=window, **options)
    return SimulatedEstimate(
        *(torch.from_numpy(item) for item in (found.primary, found.secondary, found.coherence))
    )


@pytest.mark.parametrize("window", [4096, 8192])
def test_only_windows_are_convolved_yet_nothing_changes(
    pairs: tuple[PathPair, ...], noise_set: NoiseSet, window: int
) -> None:
    fast = simulate_calibration(pairs[:1], noise_set, window=window)
    # Rounding of float64 transforms, enlarged where a probe has little power.
    assert_equal(fast, whole_calibration(pairs[0], noise_set, range(8), window), atol=1e-9)


def test_batch_equals_pairs_one_by_one(noise_set: NoiseSet) -> None:
    pairs = simulate_listeners(5).pairs  # ten pairs: more than are calibrated at once
    together = simulate_calibration(pairs, noise_set, probes=[0, 3], snr_db=20.0)
    assert together.primary.shape == (10, 8192)
    assert together.coherence.shape == (10, 16385)
    assert together.primary.dtype == torch.float64
    for place in (0, 9):
        alone = simulate_calibration([pairs[place]], noise_set, probes=[0, 3], snr_db=20.0)
        assert_equal(alone, _row(together, place), atol=1e-12)


def _row(estimate: SimulatedEstimate, place: int) -> SimulatedEstimate:
    at = slice(place, place + 1)
    return SimulatedEstimate(estimate.primary[at], estimate.secondary[at], estimate.coherence[at])


def test_measurement_noise_has_requested_level(pairs: tuple[PathPair, ...], noise_set: NoiseSet) -> None:
    clean = simulate_calibration(pairs[:1], noise_set)
    noisy = simulate_calibration(pairs[:1], noise_set, snr_db=20.0, seed=1)
    assert_equal(noisy, simulate_calibration(pairs[:1], noise_set, snr_db=20.0, seed=1))
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
