"""What listeners have in common, and what that says of a measurement."""

import numpy as np
import pytest

from measurement.prior import PRIOR_BINS, PathPrior, array_shapes, device_mean, learn_path_prior
from tests.oracles import path_prior as oracle

FACTORS = (1e-30, 1e30)


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
    noise[-500:] = np.inf
    return measured, noise


def test_fit_of_device_equals_twin(prior: PathPrior, measurement: tuple[np.ndarray, np.ndarray]) -> None:
    spectra, noise = measurement
    primary = prior.primary
    found, _, remainder = device_mean(primary, spectra, noise)
    level = np.sqrt(np.median(remainder / oracle.raised(primary.residual_variance, primary, spectra, noise)))
    expected = oracle.device_mean(primary, spectra / level, noise / level**2)
    # Normal equations against a dense least-squares solve, of three well-scaled unknowns.
    np.testing.assert_allclose(found / level, expected, rtol=0, atol=1e-9 * np.abs(expected).max())


def test_other_windows_see_same_responses(prior: PathPrior) -> None:
    other = prior.primary.on_grid(2049)
    response, expected = np.fft.irfft(other.mean)[:2000], np.fft.irfft(prior.primary.mean)[:2000]
    np.testing.assert_allclose(response, expected, atol=1e-12)
    assert other.variance.shape == (2049,)
    assert prior.primary.on_grid(PRIOR_BINS) is prior.primary


def test_arrays_bring_it_back(prior: PathPrior) -> None:
    arrays = prior.arrays()
    assert {name: array.shape for name, array in arrays.items()} == array_shapes(3)
    again = PathPrior.from_arrays(arrays)
    assert again.n_ears == 12
    # float32 in between.
    np.testing.assert_allclose(again.secondary.mean, prior.secondary.mean, rtol=1e-6, atol=1e-6)
    np.testing.assert_array_equal(
        PathPrior.from_arrays(again.arrays()).primary.directions, again.primary.directions
    )


def test_primary_noise_variance_is_predicted() -> None:
    """White noise beside a probe that is silent in the upper half: per frame, over the probe's power."""
    n_frames = 40
    reference = np.where(np.arange(PRIOR_BINS) < 2000, 4.0 * n_frames, 0.0)
    found = primary_noise(reference, np.full(PRIOR_BINS, 3.0 * (n_frames - 1)), n_frames)
    np.testing.assert_allclose(found[:2000], 3.0 / (4.0 * n_frames))
    assert np.all(np.isinf(found[2000:]))


def test_noise_lies_at_early_lags() -> None:
    """Two windowed noises have most products at lag 0, fewest at half of the window."""
    rng = np.random.default_rng(8)
    window = 1024
    hann = np.hanning(window + 1)[:-1]
    x, n = np.fft.rfft(hann * rng.standard_normal((2, 2000, window)))
    power = np.mean(np.fft.irfft(x.conj() * n) ** 2, axis=0)
    share = power[:256].sum() / power.sum()
    assert kept_noise_share(window, 256) == pytest.approx(share, rel=0.02)
    assert kept_noise_share(window, window) == pytest.approx(1)


@pytest.fixture(scope="module")
def left_out(ears: list[measured.MeasuredEar]) -> PathPrior:
    """The prior of all measured persons but the first."""
    others = ears[2:]
    return learn_path_prior(
        [e.primary for e in others], [e.secondary for e in others], [e.name[:3] for e in others]
    )


@pytest.fixture(scope="module")
def low_pass(measured_data: Path) -> Probes:
    """A recording without sound above 8 kHz (90 dB less), as in an aeroplane."""
    noise = measured.read_noises(measured_data)[:1, : 4 * 48_000]
    frequency_hz = np.fft.rfftfreq(noise.shape[-1], 1 / 48_000)
    gain = np.maximum(1 / (1 + (frequency_hz / 8000) ** 40), 10 ** (-90 / 20))
    return Probes.of(np.fft.irfft(np.fft.rfft(noise) * gain))


def _estimates(takes: list, prior: PathPrior) -> tuple[PathEstimate, PathEstimate]:
    states = probe_states(takes, first_sample=0, last_sample=6 * 8192)
    return paths_of_states(states), paths_of_states(states, prior=prior)


@pytest.mark.parametrize("snr_db", [None, 40.0, 20.0])
def test_prior_improves_estimates_in_silent_bins(
    ears: list[measured.MeasuredEar], left_out: PathPrior, low_pass: Probes, snr_db: float | None
) -> None:
    fault = Fault() if snr_db is None else Fault(error=partial(noisy, snr_db=snr_db))
    errors = []
    for ear in ears[:2]:
        truth = np.fft.rfft(ear.secondary, 32_768)
        takes = takes_of(low_pass, ear.primary, ear.secondary, fault)
        for estimate in _estimates(takes, left_out):
            error = np.abs(np.fft.rfft(estimate.secondary, 32_768) - truth) ** 2
            errors.append(np.mean(error[7000:]))
    # Regularisation leaves the whole path as error there, the prior a part of it. (Ears' primaries have nothing in
    # common there.)
    assert np.mean(errors[1::2]) < 0.5 * np.mean(errors[::2])


def test_secondary_variance_matches_error(
    ears: list[measured.MeasuredEar], left_out: PathPrior, low_pass: Probes
) -> None:
    ratios = []
    for ear in ears[:2]:
        takes = takes_of(low_pass, ear.primary, ear.secondary, Fault(error=partial(noisy, snr_db=30.0)))
        estimate = _estimates(takes, left_out)[1]
        error = np.abs(np.fft.rfft(estimate.secondary, 32_768) - np.fft.rfft(ear.secondary, 32_768)) ** 2
        for low, high in ((70, 700), (700, 5000), (7000, 16_000)):
            ratios.append(error[low:high].sum() / estimate.secondary_variance[low:high].sum())
    by_range = np.mean(np.reshape(ratios, (-1, 3)), axis=0)
    # Single ears scatter by several decibels; the mean of six by less than 6.
    assert np.all((by_range > 0.25) & (by_range < 4)), by_range
