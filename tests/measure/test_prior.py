"""What listeners have in common, and what that says of a measurement."""

import numpy as np
import pytest

from prime_anc.measure.prior import PRIOR_BINS, PathPrior, device_mean, learn_path_prior, measurement_level
from tests.oracles import path_prior as oracle


def listeners() -> tuple[list[np.ndarray], list[np.ndarray], list[str]]:
    """Both ears of random persons: a common decay, three directions of variation, and an individual rest."""
    rng = np.random.default_rng(5)
    paths: list[list[np.ndarray]] = []
    for n in (2000, 500):
        shapes = rng.standard_normal((4, n)) * np.exp(-np.arange(n) / 40)
        scores = np.concatenate((np.ones((14, 1)), 0.3 * rng.standard_normal((14, 3))), axis=1)
        rest = 0.05 * rng.standard_normal((14, n)) * np.exp(-np.arange(n) / 40)
        paths.append(list(scores @ shapes + rest))
    return paths[0], paths[1], [f"person-{i // 2}" for i in range(14)]


@pytest.fixture(scope="module")
def prior() -> PathPrior:
    """Prior of all but the last person."""
    primaries, secondaries, persons = (listener[:12] for listener in listeners())
    return learn_path_prior(primaries, secondaries, persons, n_directions=3)


@pytest.fixture(scope="module")
def measurement() -> tuple[np.ndarray, np.ndarray]:
    """The last person's spectrum with noise that rises from bin to bin, its variance, and no data at the end."""
    rng = np.random.default_rng(6)
    truth = np.fft.rfft(listeners()[0][13], 8192)
    noise = 10 ** np.linspace(-6, 3, PRIOR_BINS)
    measured = truth + np.sqrt(noise / 2) * (rng.standard_normal((2, PRIOR_BINS)).T @ np.array([1, 1j]))
    noise[-500:] = 1e12
    return measured, noise


def test_fit_of_device_equals_twin(prior: PathPrior, measurement: tuple[np.ndarray, np.ndarray]) -> None:
    spectra, noise = measurement
    level = measurement_level(prior.primary, spectra, noise, np.ones(PRIOR_BINS, bool))
    expected = level * oracle.device_mean(prior.primary, spectra / level, noise / level**2)
    found = device_mean(prior.primary, spectra, noise)[0]
    # Normal equations against a dense least-squares solve, of three well-scaled unknowns.
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-9 * np.abs(expected).max())


def test_stated_rest_is_true_error_of_silent_bins(
    prior: PathPrior, measurement: tuple[np.ndarray, np.ndarray]
) -> None:
    truth = np.fft.rfft(listeners()[0][13], 8192)
    found = device_mean(prior.primary, *measurement)
    silent = slice(-500, None)
    # One ear stands for many, and the model has no level differences.
    assert 0.2 < np.mean(found[-1][silent]) / np.mean(np.abs(found[0] - truth)[silent] ** 2) < 8


@pytest.mark.parametrize("factor", [1e-30, 1e30])
def test_scale_does_not_matter(prior: PathPrior, measurement: tuple[np.ndarray, np.ndarray], factor: float) -> None:
    spectra, noise = measurement
    unit, scaled = (device_mean(prior.primary, a * spectra, a**2 * noise) for a in (1, factor))
    np.testing.assert_allclose(scaled[0] / factor, unit[0], rtol=1e-9)
    np.testing.assert_allclose(scaled[-1] / factor**2, unit[-1], rtol=1e-9)


def test_other_windows_see_same_responses(prior: PathPrior) -> None:
    other = prior.primary.on_grid(2049)
    response, expected = np.fft.irfft(other.mean)[:2000], np.fft.irfft(prior.primary.mean)[:2000]
    np.testing.assert_allclose(response, expected, atol=1e-12)
    assert other.variance.shape == (2049,)
    assert prior.primary.on_grid(PRIOR_BINS) is prior.primary


def test_arrays_bring_it_back(prior: PathPrior) -> None:
    again = PathPrior.from_arrays(prior.arrays())
    assert again.n_ears == 12
    # float32 in between.
    np.testing.assert_allclose(again.secondary.mean, prior.secondary.mean, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(again.primary.directions, prior.primary.directions, rtol=1e-6, atol=1e-6)
