"""Paths by their posterior: lower errors than plain spectra have, and errors that are as large as stated."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.signal import fftconvolve, lfilter

from prime_anc.measure.estimate import GainTake, PlayedTake, estimate_paths
from prime_anc.measure.posterior import Estimate, estimate
from prime_anc.measure.prior import learn_path_prior
from prime_anc.method.bands import NR_BANDS, WIDE_BANDS, band_membership, columns
from prime_anc.method.conventions import DESIGN_N_FFT
from tests.measure.probe_takes import GAIN, Fault, N, noisy, takes_of
from tests.oracles.measured import MeasuredEar

Array = NDArray[np.float64]
Pair = tuple[Array, Array]
MEMBERSHIP, SCORED = band_membership(WIDE_BANDS, DESIGN_N_FFT), columns(NR_BANDS)


NAMES = ("primary", "secondary")


def paths_of(ear: MeasuredEar) -> Pair:
    """Responses of 8192 and 2048 samples."""
    return ear.primary[:8192], ear.secondary[:2048]


@pytest.fixture(scope="module")
def pair(ears: list[MeasuredEar]) -> Pair:
    return paths_of(ears[0])


def white(seed: int = 0, n: int = N) -> Array:
    return np.random.default_rng(seed).standard_normal(n)


def in_bands(response: Array) -> Array:
    powers: Array = np.abs(np.fft.rfft(response, DESIGN_N_FFT)) ** 2 @ MEMBERSHIP
    return powers


def error_db(found: Array, truth: Array) -> Array:
    """Power of the error over that of the path, per band [31]."""
    n = max(len(found), len(truth))
    error = np.pad(found, (0, n - len(found))) - np.pad(truth, (0, n - len(truth)))
    return 10 * np.log10(in_bands(error) / in_bands(truth))


def steep(x: Array) -> Array:
    """Let a spectrum fall by 60 dB from 200 Hz to 10 kHz."""
    octave = np.log(np.fft.rfftfreq(len(x), 1 / 48_000).clip(200, 10_000) / 200) / np.log(50)
    return np.fft.irfft(np.fft.rfft(x) * 10 ** (-3 * octave))


def test_slope_of_probe_leaves_little_error(pair: Pair) -> None:
    """In plain spectra, windows carry low frequencies into high ones."""
    takes = takes_of([steep(white())], *pair)
    found, plain = estimate(takes), estimate_paths(takes, n_offsets=43)
    for name, truth in zip(NAMES, pair, strict=True):
        better_db = error_db(getattr(plain, name), truth) - error_db(getattr(found, name), truth)
        assert better_db[SCORED].mean() > 3


def test_late_echo_is_kept(pair: Pair) -> None:
    """Each path ends with an echo, in the last quarter of the taps that are estimated."""
    echoed = []
    for path, n_taps in zip(pair, (8192, 4096), strict=True):
        echo = slice(n_taps * 3 // 4, n_taps * 3 // 4 + 200)
        echoed.append((np.pad(path, (0, n_taps - len(path))), echo))
        echoed[-1][0][echo] += 0.5 * path[:200]
    found = estimate(takes_of([white()], *(path for path, _ in echoed)))
    for name, (path, echo) in zip(NAMES, echoed, strict=True):
        assert np.linalg.norm((getattr(found, name) - path)[echo]) < 0.1 * np.linalg.norm(path[echo])


def test_stated_error_is_true_one(pair: Pair) -> None:
    """Up to 4 dB too much is said: an estimate that promises too little costs less."""
    found = estimate(takes_of([white()], *pair, Fault(error=partial(noisy, snr_db=20.0))))
    for name, truth, share in zip(NAMES, pair, found.noise_share, strict=True):
        of_truth = share * in_bands(getattr(found, name)) / in_bands(truth)
        said_db = 10 * np.log10(of_truth) - error_db(getattr(found, name), truth)
        assert -1 < said_db[SCORED].mean() < 4


def test_units_and_delays_of_microphones_pass_through(pair: Pair) -> None:
    plain, delay = takes_of([white()], *pair, Fault(error=partial(noisy, snr_db=40.0))), 5
    one = estimate(plain)
    quiet = estimate([GainTake(take.gain, take.reference / 1024, take.error / 1024) for take in plain])
    for name in (*NAMES, "uncertainty"):
        # Conjugate gradients end at 1e-7.
        found, expected = getattr(quiet, name), getattr(one, name)
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6 * np.abs(expected).max())
    late = estimate([GainTake(take.gain, take.reference, np.pad(take.error, (delay, 0))[:N]) for take in plain])
    # What windows lose of a path grows with its delay: with 37 samples a difference of -24 dB.
    assert error_db(late.primary, np.pad(one.primary, (delay, 0)))[SCORED].max() < -35


def feedback_takes(pair: Pair, feedback: Array) -> tuple[list[GainTake], list[PlayedTake]]:
    """With a gain the outer microphone hears the loudspeaker, which plays what it hears: x = outside - g f * x."""
    primary, secondary = pair
    outside, drive = white(1), white(2)
    heard = lfilter([1.0], np.r_[1 + GAIN * feedback[0], GAIN * feedback[1:]], outside)
    disturbance, played, direct, returned = (
        fftconvolve(x, path)[:N]
        for x, path in ((outside, primary), (heard, secondary), (drive, secondary), (drive, feedback))
    )
    takes = [GainTake(0.0, outside, disturbance), GainTake(GAIN, heard, disturbance - GAIN * played)]
    return takes, [PlayedTake(drive, returned, direct)]


@pytest.mark.parametrize("with_gain", [False, True])
def test_drives_give_secondary_and_feedback_path(pair: Pair, with_gain: bool) -> None:
    feedback = 0.1 * np.pad(pair[1], (9, 0))[:600]
    takes, drives = feedback_takes(pair, feedback)
    if with_gain:  # which counts, as the drive's error microphone is noisy
        drives = [replace(drives[0], error=drives[0].error + np.std(drives[0].error) * white(3))]
    found = estimate(takes if with_gain else takes[:1], drives)
    assert found.feedback is not None
    for made, truth in zip((found.primary, found.secondary, found.feedback), (*pair, feedback), strict=True):
        assert error_db(made, truth)[SCORED].mean() < -25


def test_prior_of_other_ears_does_no_harm(ears: list[MeasuredEar]) -> None:
    others = ears[2:]
    prior = learn_path_prior(
        [e.primary for e in others], [e.secondary for e in others], [e.name[:3] for e in others]
    )
    gained_db = []
    for pair in map(paths_of, ears[:2]):
        takes = takes_of([white()], *pair, Fault(error=partial(noisy, snr_db=20.0)))
        without, with_prior = (
            [error_db(path, truth)[SCORED].mean() for path, truth in zip(found, pair, strict=False)]
            for found in (estimate(takes, prior=item) for item in (None, prior))
        )
        gained_db.append(np.subtract(without, with_prior))
    # Single ears differ by up to 1.5 dB either way.
    assert np.mean(gained_db, axis=0).min() > -1.0


@pytest.mark.parametrize("last", [3072, N // 3], ids=["64 ms", "ends"])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_bad_takes_have_finite_estimates(pair: Pair, last: int) -> None:
    """They are short, or most of them is silence."""
    takes = takes_of([white()], *pair)
    keep = slice(3072) if last == 3072 else slice(None)
    is_heard = np.arange(N) < last
    found = estimate(
        [GainTake(take.gain, (take.reference * is_heard)[keep], (take.error * is_heard)[keep]) for take in takes]
    )
    assert (found.primary.shape, found.secondary.shape) == ((8192,), (4096,))
    for made in found:
        assert made is None or np.isfinite(made).all()
    assert np.sum(found.primary**2) < 100 * np.sum(pair[0] ** 2)


def beside_silence(pair: Pair, low_hz: float, high_hz: float) -> Estimate:
    """Estimate from a probe without sound in a range of frequencies; 40 dB SNR."""
    hz = np.fft.rfftfreq(N, 1 / 48_000)
    probe = np.fft.irfft(np.fft.rfft(white()) * ~((hz >= low_hz) & (hz < high_hz)))
    return estimate(takes_of([probe], *pair, Fault(error=partial(noisy, snr_db=40.0))))


def test_gap_in_probe_is_filled_and_doubted(pair: Pair) -> None:
    """A response that decays is smooth over 1 kHz, the one band that is silent."""
    place = 30 - WIDE_BANDS[0]
    found = beside_silence(pair, 800, 1300)
    for name, truth, uncertainty in zip(NAMES, pair, found.uncertainty, strict=True):
        lacked = 10 ** (error_db(getattr(found, name), truth)[place] / 10)
        assert lacked < min(0.2, 2 * uncertainty[place])
