"""Gaps of paths are filled by what the support and the heard bins let expect, and nothing else is touched."""

from dataclasses import replace

import numpy as np
import pytest

from model_store.store import ModelStore
from synthesis.backends import create_backend
from synthesis.backends.base import Condition, DesignInput, DesignOptions
from synthesis.path_prior import PathPrior, learn_path_prior
from synthesis.unheard_bins import fill_unheard
from tests.oracles import measured
from tests.synthesis.probe_takes import Fault, Probes, takes_of
from tests.synthesis.test_path_prior import listeners

HIGHEST_HZ = 8000.0


@pytest.fixture(scope="module")
def prior() -> PathPrior:
    primaries, secondaries, persons = (each[:12] for each in listeners())
    return learn_path_prior(primaries, secondaries, persons, n_directions=3)


@pytest.fixture(scope="module")
def paths() -> tuple[np.ndarray, np.ndarray]:
    """Of a person who is not in the prior."""
    primaries, secondaries, _ = listeners()
    return primaries[13].astype(np.float32), secondaries[13].astype(np.float32)


def with_gap(path: np.ndarray) -> np.ndarray:
    """120 dB less above 8 kHz, as long as the circular response is: [8192]."""
    spectrum = np.fft.rfft(path, 8192)
    spectrum[np.fft.rfftfreq(8192, 1 / 48_000) > HIGHEST_HZ] *= 1e-6
    return np.fft.irfft(spectrum).astype(np.float32)


def test_whole_paths_come_back_themselves(prior: PathPrior, paths: tuple[np.ndarray, np.ndarray]) -> None:
    found = fill_unheard(*paths, prior)
    assert found[0] is paths[0]
    assert found[1] is paths[1]


def test_a_notch_is_the_ears_own(prior: PathPrior, paths: tuple[np.ndarray, np.ndarray]) -> None:
    """Earphones pressed to an ear have some of 190 Hz and - 40 dB, comb filters as wide and deeper."""
    frequency_hz = np.fft.rfftfreq(8192, 1 / 48_000)
    for width_hz, is_own in ((280, True), (900, False)):
        spectrum = np.fft.rfft(paths[0], 8192)
        spectrum[np.abs(frequency_hz - 4700) < width_hz / 2] *= 1e-4
        given = np.fft.irfft(spectrum).astype(np.float32)
        assert (fill_unheard(given, paths[1], prior)[0] is given) == is_own


@pytest.mark.parametrize("factor", [1e-18, 1.0, 1e15])
@pytest.mark.parametrize("form", ["response", "spectrum"])
def test_a_gap_is_filled(prior: PathPrior, paths: tuple[np.ndarray, np.ndarray], form: str, factor: float) -> None:
    given = with_gap(paths[0]) * np.float32(factor)
    if form == "spectrum":
        # Samples from 4096 on are negative time.
        given = np.fft.rfft(np.concatenate((given[:4096], np.zeros(24_576), given[4096:]))).astype(np.complex64)
    filled, other = fill_unheard(given, paths[1], prior)
    assert other is paths[1]
    assert (filled.shape, filled.dtype) == (given.shape, given.dtype)
    spectrum, before = (
        each[::4] if form == "spectrum" else np.fft.rfft(each) for each in (filled / factor, given / factor)
    )
    truth, frequency_hz = np.fft.rfft(paths[0], 8192), np.fft.rfftfreq(8192, 1 / 48_000)
    gap, heard = frequency_hz > HIGHEST_HZ + 200, frequency_hz < HIGHEST_HZ - 200
    # What the other persons differ by, and the few numbers that the heard bins tell of this one.
    assert np.sum(np.abs(spectrum - truth)[gap] ** 2) < 0.2 * np.sum(np.abs(truth)[gap] ** 2)
    np.testing.assert_allclose(spectrum[heard], before[heard], rtol=0, atol=1e-5 * np.abs(truth).max())


@pytest.mark.parametrize(
    "path",
    [
        np.zeros(100, np.float32),
        np.full(100, np.nan, np.float32),
        np.zeros(0, np.float32),
        np.ones((2, 5), np.float32),
        np.zeros(40_000, np.float32),
        np.zeros(100, np.complex64),
    ],
)
def test_what_is_no_path_is_left_to_the_backends(prior: PathPrior, path: np.ndarray) -> None:
    found = fill_unheard(path, path, prior)
    assert found[0] is path
    assert found[1] is path


def test_designs_are_those_for_the_filled_paths(prior: PathPrior, paths: tuple[np.ndarray, np.ndarray]) -> None:
    """By every backend's common part; also where it is one of several conditions."""
    parameters = ModelStore().load("default").parameters
    backend = create_backend("cpu", replace(parameters, path_prior=prior))
    plain = create_backend("cpu", replace(parameters, path_prior=None))
    whole, gap = DesignInput(*paths), Condition(with_gap(paths[0]), paths[1])
    filled = Condition(*fill_unheard(gap.primary, gap.secondary, prior))
    options = DesignOptions(n_updates=1)
    for given, expected in (
        (DesignInput(gap.primary, gap.secondary), DesignInput(filled.primary, filled.secondary)),
        (replace(whole, others=(gap,)), replace(whole, others=(filled,))),
    ):
        (found,), (wanted,) = backend.design([given], options), plain.design([expected], options)
        np.testing.assert_array_equal(found.taps, wanted.taps)  # type: ignore[union-attr]
        (told,) = backend.predict([given], [wanted.taps])  # type: ignore[union-attr]
        assert told.mean_noise_reduction_db == wanted.prediction.mean_noise_reduction_db  # type: ignore[union-attr]


def test_an_ear_measured_with_a_low_passed_recording_is_not_lost(
    ears: list[measured.MeasuredEar], measured_data
) -> None:  # type: ignore[no-untyped-def]
    """Left-out persons, the paper's regularised estimate, the bundled model."""
    from synthesis.path_estimation import estimate_paths

    noise = measured.read_noises(measured_data)[:1, : 4 * 48_000]
    low_passed = np.fft.rfft(noise)
    low_passed[:, int(HIGHEST_HZ * 4) :] *= 1e-4
    probes = Probes.of(np.fft.irfft(low_passed))
    others = ears[6:]
    left_out = learn_path_prior(
        [e.primary for e in others], [e.secondary for e in others], [e.name[:3] for e in others]
    )
    parameters = ModelStore().load("default").parameters
    gained_db = []
    for ear in ears[:6]:
        takes = takes_of(probes, ear.primary, ear.secondary, Fault())
        estimate = estimate_paths(takes, first_sample=0, last_sample=6 * 8192)
        given, true = (
            DesignInput(each.primary.astype(np.float32), each.secondary.astype(np.float32))
            for each in (estimate, ear)
        )
        scores = []
        for prior in (None, left_out):
            backend = create_backend("cpu", replace(parameters, path_prior=prior))
            (design,) = backend.design([given], DesignOptions(n_updates=1))
            (score,) = backend.evaluate([true], [design.taps])  # type: ignore[union-attr]
            scores.append(score.mean_noise_reduction_db)  # type: ignore[union-attr]
        gained_db.append(scores[1] - scores[0])
    # 5 dB and more without noise; each ear gains.
    assert np.mean(gained_db) > 2
    assert min(gained_db) > -0.3
