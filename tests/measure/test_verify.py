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

N = 4 * 48_000
NOTHING = np.zeros(1)
CASE = random_case(n_cases=1, n_fft=32_768, seed=4)
PRIMARY, SECONDARY = (np.fft.irfft(item[0])[:400] for item in (CASE.primary, CASE.secondary))
SECONDARY = np.convolve(SECONDARY, [0.25, 0.5, 0.25])  # without Nyquist, where no half sample can be shifted
GIVEN = PRIMARY.astype(np.float32), SECONDARY.astype(np.float32)
PATHS = AcousticPaths(*(torch.from_numpy(np.fft.rfft(item, 32_768)[None]) for item in (PRIMARY, SECONDARY)))
TAPS = design_wmmse(PATHS, CASE.psd())[0].float().numpy()

Change = Callable[[np.ndarray], np.ndarray]


def convolved(x: np.ndarray, h: np.ndarray) -> np.ndarray:
    n = 2**18
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
            loop = np.fft.rfft(np.convolve(taps, feedback), 2**18)
            x = np.fft.irfft(np.fft.rfft(x, 2**18) / (1 + loop))[: len(x)]
            e = e - convolved(convolved(x, taps.astype(float)), secondary)
        e = e + noise * rng.standard_normal(len(e))
        found.append(StateTake(is_on, x[8192:].astype(np.float32), e[8192:].astype(np.float32)))
    return found


def measured(change: Change) -> Verification:
    return verify(recordings(change(SECONDARY)), TAPS, *GIVEN)


def codes(found: Verification, predicted_db: float | None = None, **more: np.ndarray) -> list[str]:
    predicted_db = found.mean_noise_reduction_db if predicted_db is None else predicted_db
    return [item.code for item in diagnose(found, predicted_db, **more)]


@pytest.mark.parametrize(
    ("change", "gain_db", "delay", "is_inverted", "expected"),
    [
        (lambda s: s, 0, 0, False, ["as_predicted"]),
        (lambda s: s * 10**0.05, 1, 0, False, ["level_off"]),
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


def band_powers(spectrum: np.ndarray) -> np.ndarray:
    """Of a spectrum under white noise, and under that of the error microphone."""
    membership = band_membership(AMP_BANDS, 2 * (len(spectrum) - 1))
    return (np.abs(spectrum) ** 2 + 1e-4) @ membership


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
    expected = 10 * np.log10(band_powers(primary) / band_powers(primary - played * response / (1 + loop)))
    np.testing.assert_allclose(found.noise_reduction_db[3:], expected[3:], atol=0.3)
    assert found.mean_noise_reduction_db == pytest.approx(np.mean(expected[:21]), abs=0.5)
    assert 0 < found.interval_db < 1
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
    ("order", "corner_hz", "change", "expected"), [(6, 150, leaking, "level_off"), (4, 250, leaking, "leak")]
)
def test_bands_below_noise_show_no_leak(order: int, corner_hz: float, change: Change, expected: str) -> None:
    """With a filter that plays low frequencies alone, as one of few sections does."""
    taps = sosfilt(butter(order, corner_hz, fs=48_000, output="sos"), TAPS).astype(np.float32)
    assert codes(verify(recordings(change(SECONDARY), taps=taps), taps, *GIVEN))[0] == expected


def test_high_pass_beside_filter_is_named() -> None:
    """On a measured ear; noise that the outer microphone does not hear is no other filter, though as much remains."""
    with np.load(FILE) as stored:
        secondary, primary = stored["023"].astype(float)[:4096, [0, 4]].T
    paths = AcousticPaths(*(torch.from_numpy(np.fft.rfft(item, 32_768)[None]) for item in (primary, secondary)))
    taps = design_wmmse(paths, CASE.psd())[0].float().numpy()
    high_pass = butter(1, 20, "high", fs=48_000)
    quiet, loud = (noise * np.linalg.norm(primary) for noise in (0.003, 0.1))
    right, *others = (
        verify(
            recordings(change(np.pad(secondary, (0, 8192))), primary, noise=noise, taps=taps),
            taps,
            primary.astype(np.float32),
            secondary.astype(np.float32),
        )
        for change, noise in ((np.copy, quiet), (partial(lfilter, *high_pass), quiet), (np.copy, loud))
    )
    mean, bands = right.mean_noise_reduction_db, right.noise_reduction_db
    expected = ["as_predicted", "other_filter", "less_than_predicted"]
    assert [codes(item, mean, bands_db=bands) for item in (right, *others)] == [[code] for code in expected]


def test_band_that_filter_makes_louder_is_no_howling() -> None:
    found = verify(recordings(SECONDARY, taps=TAPS), TAPS, *GIVEN)
    mean, bands = found.mean_noise_reduction_db, found.noise_reduction_db.copy()
    loud = replace(found, howl_db=11.0, howl_hz=1250.0)
    assert codes(loud, mean, bands_db=bands) == ["howling"]
    bands[AMP_BANDS.index(31)] = -11.5
    assert codes(loud, mean, bands_db=bands) == ["as_predicted"]


def test_trim_of_another_filter_is_not_promised() -> None:
    """Gain and delay explain 19 of 20 parts of what it plays, which leaves 13 dB, not 25."""
    another = TAPS * (1 + 0.2 * np.random.default_rng(3).standard_normal(len(TAPS)))
    promised = np.full(len(AMP_BANDS), 25.0)
    for taps, expected in ((TAPS, "level_off"), (another, "other_filter")):
        found = verify(recordings(SECONDARY, taps=1.4 * taps), TAPS, *GIVEN)
        assert found.unexplained_share < 0.08
        assert codes(found, 25.0, promised_db=promised) == [expected]


def test_trimmed_filter_undoes_change() -> None:
    found = measured(lambda s: -1.2 * s[1:])
    restored = np.convolve(shifted_filter(TAPS, found), -1.2 * SECONDARY[1:])
    # 0.05 samples and 0.1 dB of error, and the samples lost at the end.
    wanted = np.convolve(TAPS, SECONDARY)[: len(restored)]
    assert np.linalg.norm(restored - wanted) < 0.05 * np.linalg.norm(wanted)
    now = np.fft.irfft(path_found(SECONDARY.astype(np.float32), found))
    np.testing.assert_allclose(now[: len(SECONDARY)], -1.2 * np.pad(SECONDARY[1:], (0, 1)), atol=0.02)


@pytest.mark.parametrize("fault", ["no on", "short", "unequal", "silent"])
def test_useless_recordings_are_refused(fault: str) -> None:
    off, on = recordings(SECONDARY, n=MIN_SAMPLES)
    second = {
        "no on": off,
        "short": replace(on, x=on.x[:-1], e=on.e[:-1]),
        "unequal": replace(on, e=on.e[:-1]),
        "silent": replace(on, e=0 * on.e),
    }
    with pytest.raises(InvalidOption):
        verify([off, second[fault]], TAPS, *GIVEN)
