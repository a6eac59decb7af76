"""Verification on simulated recordings with the filter off and on: changes are found with their amounts."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from scipy.signal import butter, lfilter, sosfilt

from prime_anc.measure.verify import (
    MIN_SAMPLES,
    StateTake,
    Verification,
    diagnose,
    interval_of_medians,
    path_found,
    shifted_filter,
    verify,
)
from prime_anc.method.bands import AMP_BANDS, band_membership
from prime_anc.method.errors import InvalidOption
from prime_anc.method.paths import AcousticPaths
from prime_anc.method.start.wiener import design_wmmse
from tests.data.six_ears import FILE
from tests.method.cases import random_case

N = 6 * 48_000
NOTHING = np.zeros(1)
CASE = random_case(n_cases=1, n_fft=32_768, seed=4)
PRIMARY, SECONDARY = (np.fft.irfft(item[0])[:400] for item in (CASE.primary, CASE.secondary))
SECONDARY = np.convolve(SECONDARY, [0.25, 0.5, 0.25])  # without Nyquist, where no half sample can be shifted
GIVEN = PRIMARY.astype(np.float32), SECONDARY.astype(np.float32)
PATHS = AcousticPaths(*(torch.from_numpy(np.fft.rfft(item, 32_768)[None]) for item in (PRIMARY, SECONDARY)))
TAPS = design_wmmse(PATHS, CASE.psd())[0].float().numpy()

Change = Callable[[np.ndarray], np.ndarray]


def convolved(x: np.ndarray, h: np.ndarray) -> np.ndarray:
    n = 2**20
    return np.fft.irfft(np.fft.rfft(x, n) * np.fft.rfft(h, n), n)[: len(x)]


def delayed(secondary: np.ndarray, samples: float) -> np.ndarray:
    n = 4096
    turned = np.fft.rfft(secondary, n) * np.exp(-2j * np.pi * samples / n * np.arange(n // 2 + 1))
    return np.fft.irfft(turned, n)


def leaking(secondary: np.ndarray, corner_hz: float = 150.0) -> np.ndarray:
    n = 65_536
    f = np.fft.rfftfreq(n, 1 / 48_000)
    return np.fft.irfft(np.fft.rfft(secondary, n) * (1j * f / (corner_hz + 1j * f)), n)[:8000]


def recordings(
    secondary: np.ndarray,
    primary: np.ndarray = PRIMARY,
    n: int = N,
    noise: float = 0.01,
    seed: int = 0,
    feedback: np.ndarray = NOTHING,
    taps: np.ndarray = TAPS,
) -> list[StateTake]:
    """White noise, different in the states, and noise of the error microphone 40 dB below it."""
    rng = np.random.default_rng(seed)
    found = []
    for is_on in (False, True):
        x = rng.standard_normal(n + 8192)
        e = convolved(x, primary)
        if is_on:
            loop = np.fft.rfft(np.convolve(taps, feedback), 2**20)
            x = np.fft.irfft(np.fft.rfft(x, 2**20) / (1 + loop))[: len(x)]
            e = e - convolved(convolved(x, taps.astype(float)), secondary)
        e = e + noise * rng.standard_normal(len(e))
        found.append(StateTake(is_on, x[8192:].astype(np.float32), e[8192:].astype(np.float32)))
    return found


def measured(change: Change) -> Verification:
    return verify(recordings(change(SECONDARY)), TAPS, *GIVEN)


def codes(found: Verification, predicted_db: float | None = None) -> list[str]:
    predicted_db = found.mean_noise_reduction_db if predicted_db is None else predicted_db
    return [item.code for item in diagnose(found, predicted_db)]


@pytest.mark.parametrize(
    ("change", "gain_db", "delay", "is_inverted", "expected"),
    [
        (lambda s: s, 0, 0, False, ["as_predicted"]),
        (lambda s: s * 10**0.05, 1, 0, False, ["level_off"]),
        (lambda s: s[1:], 0, -1, False, ["delay_off"]),
        (lambda s: delayed(s, 0.4), 0, 0.4, False, ["delay_off"]),
        (lambda s: -1.3 * np.pad(s, (2, 0)), 2.28, 2, True, ["polarity_off", "level_off", "delay_off"]),
    ],
)
def test_gain_delay_and_polarity(
    change: Change, gain_db: float, delay: float, is_inverted: bool, expected: list[str]
) -> None:
    found = measured(change)
    assert found.gain_db == pytest.approx(gain_db, abs=0.1)
    assert found.delay_samples == pytest.approx(delay, abs=0.05)
    assert found.is_inverted is is_inverted
    assert codes(found) == expected


def test_measured_bands_are_those_of_paths() -> None:
    found = measured(lambda s: s * 10**0.1)
    n_fft = 32_768
    response, primary, secondary = (np.fft.rfft(item, n_fft) for item in (TAPS, PRIMARY, SECONDARY * 10**0.1))
    f = np.arange(n_fft // 2 + 1) * (48_000 / n_fft)
    expected = []
    for n in AMP_BANDS:
        inside = (f >= 10 ** (n / 10 - 0.05)) & (f < 10 ** (n / 10 + 0.05))
        left = np.sum(np.abs(primary - secondary * response)[inside] ** 2) + 1e-4 * inside.sum()
        expected.append(10 * np.log10((np.sum(np.abs(primary[inside]) ** 2) + 1e-4 * inside.sum()) / left))
    # 140 or more independent bins above 200 Hz, few below.
    np.testing.assert_allclose(found.noise_reduction_db[6:], expected[6:], atol=1.0)
    assert found.mean_noise_reduction_db == pytest.approx(np.mean(expected[:21]), abs=0.5)
    assert 0 < found.interval_db < 1


def test_feedback_to_outer_microphone_is_allowed_for() -> None:
    """The loudspeaker plays 1 dB too loud and a sample late; the loop gain is up to -3 dB."""
    rng = np.random.default_rng(7)
    feedback = np.pad(rng.standard_normal(300) * np.exp(-np.arange(300) / 40), (20, 0))
    feedback *= 10**-0.15 / np.abs(np.fft.rfft(TAPS, 2**16) * np.fft.rfft(feedback, 2**16)).max()
    secondary, leaked = (10**0.05 * np.pad(item, (1, 0)) for item in (SECONDARY, feedback))
    takes = recordings(secondary, feedback=leaked)
    found = verify(takes, TAPS, *GIVEN, feedback.astype(np.float32))
    assert (found.gain_db, found.delay_samples) == pytest.approx((1, 1), abs=0.05)
    primary, response, played, loop = (
        np.fft.rfft(item, 2**16) for item in (PRIMARY, TAPS, secondary, np.convolve(TAPS, leaked))
    )
    after = np.abs(primary - played * response / (1 + loop)) ** 2 + 1e-4
    membership = band_membership(AMP_BANDS, 2**16)
    expected = 10 * np.log10((np.abs(primary) ** 2 + 1e-4) @ membership / (after @ membership))
    np.testing.assert_allclose(found.noise_reduction_db[3:], expected[3:], atol=0.3)
    unaware = verify(takes, TAPS, *GIVEN)  # without the feedback path
    assert np.abs(unaware.noise_reduction_db - expected).max() > 2


def test_interval_holds_eight_of_ten_differences() -> None:
    rng = np.random.default_rng(11)
    pairs = rng.normal(0, (0.5, 1.2), (2000, 40, 2))
    both = [(off, on, interval_of_medians(off, on)) for off, on in pairs.swapaxes(1, 2)]
    held = [width is not None and abs(np.median(off) - np.median(on)) <= width for off, on, width in both]
    # Standard error of the share: 0.009. Spreads estimated from 40 blocks cost it 0.01.
    assert 0.76 < np.mean(held) < 0.83


def test_one_block_has_no_interval() -> None:
    assert verify(recordings(SECONDARY, n=MIN_SAMPLES), TAPS, *GIVEN).interval_db is None


def test_leak_another_fit_and_silence() -> None:
    assert codes(measured(leaking)) == ["leak"]
    rng = np.random.default_rng(5)
    other = SECONDARY + 0.5 * np.convolve(SECONDARY, rng.standard_normal(40))[: len(SECONDARY)]
    assert codes(measured(lambda s: other)) == ["other_filter"]
    assert codes(measured(lambda s: 0 * s)) == ["not_running"]
    swapped = [StateTake(take.is_on, take.e, take.x) for take in recordings(SECONDARY)]
    assert codes(verify(swapped, TAPS, *GIVEN)) == ["exchanged_channels"]
    elsewhere = verify(recordings(SECONDARY, primary=np.roll(PRIMARY, 3)), TAPS, *GIVEN)
    assert codes(elsewhere, 25.0) == ["refit"]


@pytest.mark.parametrize(
    ("order", "corner_hz", "change", "expected"),
    [(6, 150, np.copy, "as_predicted"), (6, 150, leaking, "level_off"), (4, 250, leaking, "leak")],
)
def test_bands_below_noise_show_no_leak(order: int, corner_hz: float, change: Change, expected: str) -> None:
    """With a filter that plays low frequencies alone, as one of few sections does."""
    taps = sosfilt(butter(order, corner_hz, fs=48_000, output="sos"), TAPS).astype(np.float32)
    assert codes(verify(recordings(change(SECONDARY), taps=taps), taps, *GIVEN))[0] == expected


@pytest.mark.parametrize("person", ["001", "023"])
def test_high_pass_beside_filter_is_named(person: str) -> None:
    """On measured ears; noise that the outer microphone does not hear is no other filter, though as much remains."""
    with np.load(FILE) as stored:
        secondary, primary = stored[person].astype(float)[:4096, [0, 4]].T
    paths = AcousticPaths(*(torch.from_numpy(np.fft.rfft(item, 32_768)[None]) for item in (primary, secondary)))
    taps = design_wmmse(paths, CASE.psd())[0].float().numpy()
    high_pass = butter(1, 20, "high", fs=48_000)
    quiet, loud = (noise * np.linalg.norm(primary) for noise in (0.003, 0.1))
    found = []
    for change, noise in ((np.copy, quiet), (partial(lfilter, *high_pass), quiet), (np.copy, loud)):
        takes = recordings(change(np.pad(secondary, (0, 8192))), primary, noise=noise, taps=taps)
        found.append(verify(takes, taps, primary.astype(np.float32), secondary.astype(np.float32)))
    right, wrong, noisy = found
    mean, bands = right.mean_noise_reduction_db, right.noise_reduction_db
    assert [item.code for item in diagnose(wrong, mean, bands_db=bands)] == ["other_filter"]
    assert [item.code for item in diagnose(right, mean, bands_db=bands)] == ["as_predicted"]
    assert [item.code for item in diagnose(noisy, mean, bands_db=bands)] == ["less_than_predicted"]


def test_other_filter_is_named_alone() -> None:
    found = verify(recordings(SECONDARY, taps=TAPS[300::-1].copy()), TAPS, *GIVEN)
    (only,) = diagnose(found, 20.0)
    assert only.code == "other_filter"
    assert "trim" not in only.detail


def test_band_that_filter_makes_louder_is_no_howling() -> None:
    found = verify(recordings(SECONDARY, taps=TAPS), TAPS, *GIVEN)
    mean, bands = found.mean_noise_reduction_db, found.noise_reduction_db.copy()
    loud = replace(found, howl_db=11.0, howl_hz=1250.0)
    assert [item.code for item in diagnose(loud, mean, bands_db=bands)] == ["howling"]
    bands[AMP_BANDS.index(31)] = -11.5
    assert [item.code for item in diagnose(loud, mean, bands_db=bands)] == ["as_predicted"]


def test_trim_of_another_filter_is_not_promised() -> None:
    """Gain and delay explain 19 of 20 parts of what it plays, which leaves 13 dB, not 25."""
    another = TAPS * (1 + 0.2 * np.random.default_rng(3).standard_normal(len(TAPS)))
    promised = np.full(len(AMP_BANDS), 25.0)
    for taps, expected in ((TAPS, "level_off"), (another, "other_filter")):
        found = verify(recordings(SECONDARY, taps=1.4 * taps), TAPS, *GIVEN)
        assert found.unexplained_share < 0.08
        assert [item.code for item in diagnose(found, 25.0, promised_db=promised)] == [expected]


def test_what_was_found_can_be_undone() -> None:
    found = measured(lambda s: -1.2 * s[1:])
    now = np.fft.irfft(path_found(SECONDARY.astype(np.float32), found))
    expected = np.pad(-1.2 * SECONDARY[1:], (0, 8))
    np.testing.assert_allclose(now[: len(expected)], expected, atol=0.02)
    restored = np.convolve(shifted_filter(TAPS, found), -1.2 * SECONDARY[1:])
    # 0.05 samples and 0.1 dB of error, and the samples lost at the end.
    wanted = np.convolve(TAPS, SECONDARY)[: len(restored)]
    assert np.linalg.norm(restored - wanted) < 0.05 * np.linalg.norm(wanted)


@pytest.mark.parametrize("fault", ["no on", "short", "unequal", "silent"])
def test_useless_recordings_are_diagnosed(fault: str) -> None:
    takes = recordings(SECONDARY, n=MIN_SAMPLES)
    off, on = takes
    if fault == "no on":
        takes = [off, off]
    elif fault == "short":
        takes = [off, StateTake(True, on.x[:-1], on.e[:-1])]
    elif fault == "unequal":
        takes = [off, StateTake(True, on.x, on.e[:-1])]
    else:
        takes = [off, StateTake(True, on.x, 0 * on.e)]
    with pytest.raises(InvalidOption):
        verify(takes, TAPS, *GIVEN)


def test_microphone_turned_down_is_not_as_predicted() -> None:
    """6 dB in the take with the filter on resemble noise reduction."""
    rng = np.random.default_rng(9)
    x, noise = rng.standard_normal(4 * 48_000), 0.01 * rng.standard_normal((2, 4 * 48_000))
    primary = PRIMARY + 0.1 * np.linalg.norm(PRIMARY) / np.sqrt(len(PRIMARY)) * rng.standard_normal(len(PRIMARY))
    given = primary.astype(np.float32), GIVEN[1]
    e = convolved(x, primary)
    left = e - convolved(convolved(x, TAPS.astype(float)), SECONDARY)
    off, on = StateTake(False, x, e + noise[0]), left + noise[1]
    for gain, expected in ((1.0, "as_predicted"), (0.5, "implausible_reduction")):
        assert codes(verify([off, StateTake(True, x, gain * on)], TAPS, *given)) == [expected]
