"""Figures of a calibration equal the float64 twin's, windows are planned, and invalid takes are rejected."""

from functools import partial

import numpy as np
import pytest

from prime_anc.measure.calibration import MAX_SAMPLES, MIN_SAMPLES, Windows, calibrate, plan_windows
from prime_anc.measure.estimate import GainTake
from prime_anc.measure.signals import clipped_share
from prime_anc.method.errors import InvalidOption, InvalidPaths
from tests.measure.probe_takes import GAIN, SIX_WINDOWS, Fault, N, noisy, takes_of
from tests.method.cases import decaying_noise
from tests.oracles import calibration as oracle
from tests.oracles import path_estimation

pytestmark = pytest.mark.usefixtures("coarse_posterior")


@pytest.fixture(scope="module")
def paths() -> tuple[np.ndarray, np.ndarray]:
    """A random ear: primary and secondary path of 1500 and 600 samples."""
    rng = np.random.default_rng(2)
    return (
        decaying_noise(rng, 1, delay=9, length=1500, decay=150.0)[0],
        decaying_noise(rng, 1, delay=5, length=600, decay=60.0)[0],
    )


@pytest.fixture(scope="module")
def probes() -> np.ndarray:
    """Two white noises."""
    return 0.05 * np.random.default_rng(3).standard_normal((2, N))


Pair = tuple[np.ndarray, np.ndarray]


def test_figures_equal_twin(paths: Pair, probes: np.ndarray) -> None:
    takes = takes_of(probes, *paths, Fault(error=partial(noisy, snr_db=30.0)))
    e_0, e_g = (np.array([take.error for take in takes[n::2]]) for n in range(2))
    x, e_0, e_g = (path_estimation.cut(item, 8192) for item in (probes, e_0, e_g))
    expected = oracle.figures(x, e_0, x, e_g, GAIN)
    found = calibrate(takes, windows=SIX_WINDOWS)
    # Both in float64; where a coherence is nearly one, 1 - c keeps nine of its digits.
    np.testing.assert_allclose(found.coherence, expected.coherence, rtol=1e-9)
    np.testing.assert_allclose(found.noise_reduction_ceiling_db, expected.ceiling_db, atol=1e-6)
    np.testing.assert_allclose(found.secondary_snr_db, expected.snr_db, atol=1e-6)
    assert found.tail_db == pytest.approx(expected.tail_db, abs=1e-6)
    assert (found.window, found.n_frames) == (8192, 12)


@pytest.mark.parametrize(
    ("n_samples", "n_windows", "expected"),
    [
        (192_000, 64, Windows(8192, 8192, 43)),
        (MAX_SAMPLES, 64, Windows(8192, 8192, 64)),
        (24_576, 6, Windows(8192, 8192, 3)),
        (24_575, 6, Windows(4096, 4096, 6)),
        (MIN_SAMPLES, 6, Windows(1024, 1024, 3)),
    ],
)
def test_windows_fit_and_overlap_by_half_at_most(n_samples: int, n_windows: int, expected: Windows) -> None:
    assert plan_windows(n_samples, n_windows) == expected
    length, first, n = expected
    assert first + length + (n - 1) * length // 2 <= n_samples


def test_clipped_samples_are_counted_at_both_ends() -> None:
    signal = np.random.default_rng(7).standard_normal(10_000)
    assert clipped_share(signal) == 0
    beyond = int((signal > 2).sum()) + int((signal < -2).sum())
    assert clipped_share(signal.clip(-2, 2)) == (beyond - 2) / 10_000
    assert clipped_share(signal.clip(max=2)) == (int((signal > 2).sum()) - 1) / 10_000
    assert clipped_share(np.abs(signal)) == 0  # its smallest value is none that a converter ends at


def test_bad_takes_are_named() -> None:
    noise = np.random.default_rng(8).standard_normal(N)
    silent, driven = GainTake(0.0, noise, noise), GainTake(GAIN, noise, noise / 2)
    short, long = GainTake(GAIN, noise, noise[:3000]), GainTake(GAIN, np.ones(MAX_SAMPLES + 1), noise)
    for takes, begin in (
        (
            (silent, silent),
            "takes: their gains are [0.0]; record at least one take with gain 0 and one with another",
        ),
        ((silent, short), "take 1, e: it has 3000 samples; record 3072 to 2880000"),
        ((silent, long), "take 1, x: it has 2880001 samples"),
        ((silent, GainTake(GAIN, noise * np.inf, noise)), "take 1, x: it holds NaN or infinity"),
        ((GainTake(0.0, noise, 0 * noise), driven), "take 0, e: it is silent"),
        ((silent, GainTake(GAIN, noise, noise)), "takes: the states do not differ"),
    ):
        with pytest.raises((InvalidPaths, InvalidOption)) as caught:
            calibrate(takes)
        assert str(caught.value).startswith(begin)
        assert caught.value.field == "takes"


def test_clipping_of_sweep_is_detected() -> None:
    """A sweep has many samples at its extremes, above all in 16 bits."""
    octaves = np.log(1000.0)
    time = np.arange(4 * 48_000) / (4 * 48_000)
    sweep = np.round(2**15 * np.sin(2 * np.pi * 20 * 4 / octaves * np.expm1(octaves * time)))
    assert clipped_share(sweep) == 0
    assert clipped_share(np.clip(sweep, -29_000, 29_000)) > 0.1


def test_level_of_wrongly_declared_gain_is_stated(paths: Pair, probes: np.ndarray) -> None:
    right, wrong = takes_of(probes[:1], *paths), takes_of(probes[1:], *paths, gain=2 * GAIN)
    wrong[1] = GainTake(4 * GAIN, wrong[1].reference, wrong[1].error)
    found = calibrate([*right, *wrong])
    assert [gain for gain, _ in found.state_levels_db] == [GAIN, 4 * GAIN]
    assert found.state_levels_db[0][1] - found.state_levels_db[1][1] == pytest.approx(20 * np.log10(2), abs=0.01)
