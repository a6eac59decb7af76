"""Figures of a calibration equal the float64 twin's, windows are planned, and invalid takes are rejected."""

from functools import partial

import numpy as np
import pytest
from scipy.signal import butter, fftconvolve, lfilter, sosfilt

from measurement.calibration import (
    MAX_SAMPLES,
    MIN_SAMPLES,
    Calibration,
    Windows,
    calibrate,
    clipped_share,
    plan_windows,
)
from measurement.estimate import GainTake, PlayedTake, estimate_paths
from measurement.prior import learn_path_prior
from synthesis.bands import AMP_BANDS, WIDE_BANDS, band_membership, columns
from synthesis.conventions import DESIGN_N_FFT
from synthesis.errors import InvalidOption, InvalidPaths
from tests.measurement.probe_takes import FRAMES, GAIN, Fault, Probes, frames_of, noisy, takes_of
from tests.oracles import calibration as oracle
from tests.synthesis.cases import decaying_noise
from training.datasets.simulated_systems import simulate_system


@pytest.fixture(scope="module")
def paths() -> tuple[np.ndarray, np.ndarray]:
    """A random ear: primary and secondary path of 1500 and 600 samples."""
    rng = np.random.default_rng(2)
    return (
        decaying_noise(rng, 1, delay=9, length=1500, decay=150.0)[0],
        decaying_noise(rng, 1, delay=5, length=600, decay=60.0)[0],
    )


@pytest.fixture(scope="module")
def probes() -> Probes:
    """Two white noises."""
    return Probes.of(0.05 * np.random.default_rng(3).standard_normal((2, 4 * 48_000)))


@pytest.mark.parametrize("snr_db", [None, 30.0])
def test_figures_equal_twin(paths: tuple[np.ndarray, np.ndarray], probes: Probes, snr_db: float | None) -> None:
    fault = Fault() if snr_db is None else Fault(error=partial(noisy, snr_db=snr_db))
    x, e_0, e_g = frames_of(probes, *paths, fault)
    expected = oracle.figures(x, e_0, x, e_g, GAIN)
    found = calibrate(takes_of(probes, *paths, fault), windows=FRAMES)
    # Both in float64; where a coherence is nearly one, 1 - c keeps nine of its digits.
    np.testing.assert_allclose(found.coherence, expected.coherence, rtol=1e-9)
    np.testing.assert_allclose(found.noise_reduction_ceiling_db, expected.ceiling_db, atol=1e-6)
    np.testing.assert_allclose(found.secondary_snr_db, expected.snr_db, atol=1e-6)
    assert found.tail_db == pytest.approx(expected.tail_db, abs=1e-6)
    assert (found.window, found.n_frames) == (8192, 12)


def test_estimates_are_those_of_estimate_paths(paths: tuple[np.ndarray, np.ndarray]) -> None:
    """Six windows of four seconds are cut as in training; float32 recordings suffice."""
    primary, secondary = paths
    x = 0.05 * np.random.default_rng(5).standard_normal(4 * 48_000)
    errors = [lfilter(primary - gain * np.pad(secondary, (0, 900)), 1, x) for gain in (0.0, GAIN)]
    takes = [GainTake(gain, x, e) for gain, e in zip((0.0, GAIN), errors, strict=True)]
    expected = estimate_paths(takes)
    single_takes = [GainTake(t.gain, t.reference.astype(np.float32), t.error.astype(np.float32)) for t in takes]
    found, single = (calibrate(each, windows=Windows(8192, 8192, 6)) for each in (takes, single_takes))
    assert calibrate(takes).n_frames == 20
    for name in ("primary", "secondary", "coherence"):
        wanted = getattr(expected, name)
        np.testing.assert_allclose(getattr(found.measured, name), wanted, rtol=0, atol=1e-12)
        np.testing.assert_allclose(getattr(single.measured, name), wanted, rtol=0, atol=1e-5)


def test_paths_lose_noise_and_windows_weight(paths: tuple[np.ndarray, np.ndarray], probes: Probes) -> None:
    found = calibrate(takes_of(probes, *paths, Fault(error=partial(noisy, snr_db=20.0))), windows=FRAMES)
    pairs = (found.estimate.primary, found.measured.primary), (found.secondary, found.measured.secondary)
    for truth, (made, raw) in zip(paths, pairs, strict=True):
        made, raw, truth = (np.pad(item, (0, 8192 - len(item))) for item in (made, raw, truth))
        assert np.sum((made - truth) ** 2) < np.sum((raw - truth) ** 2) / 4


def test_long_responses_are_not_cut() -> None:
    """A duct whose primary path has 2 % of its energy after 43 ms, its secondary path 0.5 %; 40 dB SNR."""
    system, rng = simulate_system(20, 606), np.random.default_rng(1)
    x = rng.standard_normal(4 * 48_000)
    errors = [fftconvolve(x, path)[: x.size] for path in (system.primary, system.secondary)]
    noise = 0.01 * errors[0].std() * rng.standard_normal((2, x.size))
    takes = [GainTake(gain, x, errors[0] - gain * errors[1] + noise[n]) for n, gain in enumerate((0.0, GAIN))]
    found = calibrate(takes)
    for made, path in ((found.estimate.primary, system.primary), (found.secondary, system.secondary)):
        late = path[2048 : len(made)]
        assert np.sum((made[2048 : len(path)] - late) ** 2) < 0.1 * np.sum(late**2)


@pytest.mark.parametrize(
    ("n_samples", "n_windows", "has_prior", "expected"),
    [
        (192_000, 6, True, Windows(8192, 8192, 6)),
        (192_000, 64, True, Windows(8192, 8192, 43)),
        (MAX_SAMPLES, 64, True, Windows(8192, 8192, 64)),
        (24_576, 6, True, Windows(8192, 8192, 3)),
        (24_575, 6, False, Windows(4096, 4096, 6)),
        (12_287, 6, True, Windows(2048, 2048, 6)),
        (MIN_SAMPLES, 6, False, Windows(1024, 1024, 3)),
        (131_072, 64, False, Windows(16_384, 16_384, 13)),
        (131_071, 64, False, Windows(8192, 8192, 28)),
    ],
)
def test_windows_fit_and_overlap_by_half_at_most(
    n_samples: int, n_windows: int, has_prior: bool, expected: Windows
) -> None:
    assert plan_windows(n_samples, n_windows, has_prior=has_prior) == expected
    length, first, n = expected
    assert first + length + (n - 1) * length // 2 <= n_samples


def test_clipped_samples_are_counted_at_both_ends() -> None:
    signal = np.random.default_rng(7).standard_normal(10_000)
    assert clipped_share(signal) == 0
    beyond = int((signal > 2).sum()) + int((signal < -2).sum())
    assert clipped_share(signal.clip(-2, 2)) == (beyond - 2) / 10_000
    assert clipped_share(signal.clip(max=2)) == (int((signal > 2).sum()) - 1) / 10_000
    assert clipped_share(np.abs(signal)) == 0  # its smallest value is none that a converter ends at


N = 4 * 48_000


def refusal(*takes: GainTake) -> tuple[str, str | None]:
    with pytest.raises((InvalidPaths, InvalidOption)) as caught:
        calibrate(takes)
    return str(caught.value), caught.value.field


def test_bad_takes_are_named() -> None:
    noise = np.random.default_rng(8).standard_normal(N)
    silent, driven = GainTake(0.0, noise, noise), GainTake(GAIN, noise, noise / 2)
    assert refusal(silent, silent) == (
        "takes: their gains are [0.0]; record at least one take with gain 0 and one with another gain",
        "takes",
    )
    assert refusal(silent, GainTake(GAIN, noise, noise[:3000])) == (
        "take 1, e: it has 3000 samples; record 3072 to 2880000",
        "takes",
    )
    assert "it has 2880001 samples" in refusal(silent, GainTake(GAIN, np.ones(MAX_SAMPLES + 1), noise))[0]
    assert refusal(silent, GainTake(GAIN, noise * np.inf, noise))[0].startswith(
        "take 1, x: it holds NaN or infinity"
    )
    assert refusal(GainTake(0.0, noise, 0 * noise), driven)[0].startswith("take 0, e: it is silent")
    assert refusal(silent, GainTake(GAIN, noise, noise))[0].startswith("takes: the states do not differ")


@pytest.mark.parametrize("step", [0.0, 2.0**-15])
def test_clipping_of_sweep_is_detected(step: float) -> None:
    """A sweep has many samples at its extremes, above all in 16 bits."""
    octaves = np.log(1000.0)
    time = np.arange(4 * 48_000) / (4 * 48_000)
    sweep = np.sin(2 * np.pi * 20 * 4 / octaves * np.expm1(octaves * time))
    if step:
        sweep = step * np.round(sweep / step)
    assert clipped_share(sweep) == 0
    assert clipped_share(np.clip(sweep, -0.9, 0.9)) > 0.1


def test_drives_give_secondary_and_feedback_path() -> None:
    rng = np.random.default_rng(8)
    decay = np.exp(-np.arange(400) / 40)
    primary, secondary, feedback = (level * rng.standard_normal(400) * decay for level in (0.5, 0.8, 0.05))
    n = 4 * 48_000
    outside, drive = rng.standard_normal((2, n))
    silent = GainTake(0.0, outside, fftconvolve(outside, primary)[:n])
    alone = PlayedTake(drive, fftconvolve(drive, feedback)[:n], fftconvolve(drive, secondary)[:n])
    found = calibrate([silent], drives=[alone])
    pairs = ((found.estimate.primary, primary), (found.estimate.secondary, secondary), (found.feedback, feedback))
    for estimate, true in pairs:
        wrong = estimate - np.pad(true, (0, len(estimate) - len(true)))
        # The window loses 1e-4 of the power of responses of 400 samples.
        assert np.sum(wrong**2) < 1e-3 * np.sum(true**2)
    # With a gain the outer microphone hears the loudspeaker, which plays what it hears: x = outside - 0.5 f * x.
    loop = 0.5 * feedback
    loop[0] += 1
    heard = lfilter([1.0], loop, outside)
    error = fftconvolve(outside, primary)[:n] - 0.5 * fftconvolve(heard, secondary)[:n]
    gained = GainTake(0.5, heard, error)
    both = calibrate([silent, gained], drives=[alone])
    assert np.sum((both.estimate.secondary[:400] - secondary) ** 2) < 1e-3 * np.sum(secondary**2)
    assert calibrate([silent, gained]).feedback is None
    with pytest.raises(InvalidOption):
        calibrate([silent])


def test_noise_shows_no_tail(paths: tuple[np.ndarray, np.ndarray]) -> None:
    """The stated uncertainty exceeds the estimate's error by 8 dB in few bands; in one of ten with one standard error
    of the tail, by up to 16 dB.
    """
    membership = band_membership(AMP_BANDS, DESIGN_N_FFT)
    driven = paths[0] - GAIN * np.pad(paths[1], (0, 900))
    n_exceeded = 0
    for seed in range(3, 6):
        rng = np.random.default_rng(seed)
        x = rng.standard_normal(4 * 48_000)
        errors = [fftconvolve(x, path)[: x.size] for path in (paths[0], driven)]
        noisy_ones = [e + 0.01 * e.std() * rng.standard_normal(x.size) for e in errors]
        found = calibrate([GainTake(gain, x, e) for gain, e in zip((0.0, GAIN), noisy_ones, strict=True)])
        made = found.estimate.primary
        known, lacked = (
            np.abs(np.fft.rfft(path, DESIGN_N_FFT)) ** 2 @ membership
            for path in (made, made - np.pad(paths[0], (0, len(made) - 1500)))
        )
        n_exceeded += int((found.uncertainty[0, columns(AMP_BANDS)] * known > 10**0.8 * lacked).sum())
    assert n_exceeded <= 2


def test_window_leakage_is_separated_from_tail() -> None:
    """A resonance at 250 Hz rings within the windows, a tail above 1 kHz outlasts them; the estimate includes only the
    former.
    """
    rng, lags = np.random.default_rng(9), np.arange(8192)
    above_1_khz = butter(4, 1000, "highpass", fs=48_000, output="sos")

    def ear() -> tuple[np.ndarray, np.ndarray]:
        onset = np.exp(-lags / 20) * rng.standard_normal(8192)
        ring = 0.1 * np.exp(-lags / 700) * np.sin(2 * np.pi * 250 / 48_000 * lags + 0.2 * rng.standard_normal())
        tail = 0.003 * sosfilt(above_1_khz, rng.standard_normal(8192))
        return onset + ring + tail, np.exp(-lags[:2048] / 20) * rng.standard_normal(2048)

    primaries, secondaries = zip(*(ear() for _ in range(12)), strict=True)
    prior = learn_path_prior(primaries, secondaries, [f"person-{n // 2}" for n in range(12)])
    (primary, secondary), x = ear(), rng.standard_normal(10 * 48_000)
    takes = [
        GainTake(gain, x, fftconvolve(x, primary - gain * np.pad(secondary, (0, 6144)))[: x.size])
        for gain in (0.0, GAIN)
    ]
    found, unaware = calibrate(takes, prior=prior), calibrate(takes)
    membership = band_membership(WIDE_BANDS, DESIGN_N_FFT)

    def ratio_db(item: Calibration) -> np.ndarray:
        """The uncertainty over what the estimate lacks."""
        known, lacked = (
            np.abs(np.fft.rfft(path, DESIGN_N_FFT)) ** 2 @ membership
            for path in (item.estimate.primary, primary - item.estimate.primary)
        )
        return 10 * np.log10(item.uncertainty[0] * known / lacked)

    # The bands at 250 Hz have ten bins of 116 overlapping windows: their power scatters by 1 dB.
    assert np.abs(ratio_db(found)[[24 - 13, 34 - 13]]).max() < 3
    # Less two standard errors of what is later than all windows.
    assert -2 < ratio_db(unaware)[34 - 13 :].mean() < 1
