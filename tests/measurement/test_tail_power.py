"""Tail of a primary path beyond the windows, with and without noise at the error microphone."""

import numpy as np
import pytest
from scipy.signal import fftconvolve

from measurement.estimate import GainTake, probe_states, window_starts
from measurement.prior import lag_weight
from measurement.tail_power import band_powers, missing_power, tail_power

WINDOW, N_WINDOWS, LAST = 1024, 180, 100_000
# Length of the early response: the longer, the more leaks out of a window.
HELD = 256


def takes(snr_db: float | None = None, *, repeats: bool = True) -> list[GainTake]:
    """White noise through a primary path with a tail, 20 dB below, that begins after three windows."""
    rng = np.random.default_rng(7)
    primary = np.zeros(4 * WINDOW)
    primary[:HELD] = rng.standard_normal(HELD) * np.exp(-np.arange(HELD) / 8)
    tail = rng.standard_normal(WINDOW)
    primary[3 * WINDOW :] = 0.1 * np.linalg.norm(primary) * tail / np.linalg.norm(tail)
    secondary = rng.standard_normal(HELD) * np.exp(-np.arange(HELD) / 8)
    found, x = [], rng.standard_normal(LAST)
    for gain in (0.0, 0.5):
        if not repeats:
            x = rng.standard_normal(LAST)
        error = fftconvolve(x, primary)[:LAST] - gain * fftconvolve(x, secondary)[:LAST]
        if snr_db is not None:
            error = error + np.std(error) * 10 ** (-snr_db / 20) * rng.standard_normal(LAST)
        found.append(GainTake(gain, x, error))
    return found


def found_tail(recorded: list[GainTake]) -> tuple[np.ndarray | None, float]:
    """The tail and, over all bins, the unexplained power of the silent state, both over |P|^2."""
    first = 4 * WINDOW
    states = probe_states(recorded, window=WINDOW, n_offsets=N_WINDOWS, first_sample=first, last_sample=LAST)
    silent = states[0]
    unexplained = silent.error_power - np.abs(silent.cross) ** 2 / silent.reference_power
    starts = window_starts(WINDOW, N_WINDOWS, first, LAST)
    share = float(unexplained.sum() / (np.abs(silent.cross) ** 2 / silent.reference_power).sum())
    return tail_power(recorded, states, window=WINDOW, first_samples=starts), share


@pytest.mark.parametrize("snr_db", [None, 20, 10])
def test_tail_is_separated_from_microphone_noise(snr_db: float | None) -> None:
    recorded = takes(snr_db)
    tail, unexplained = found_tail(recorded)
    rng = np.random.default_rng(7)
    known = np.sum((rng.standard_normal(HELD) * np.exp(-np.arange(HELD) / 8)) ** 2)
    # White probe: the mean over bins is the tail's energy. 180 overlapping windows scatter by a few per cent where
    # noise equals the tail.
    assert tail.mean() == pytest.approx(0.01 * known, rel=0.15)
    if snr_db == 10:
        assert unexplained > 0.08


def test_nothing_is_reported_where_probe_does_not_repeat() -> None:
    assert found_tail(takes(repeats=False))[0] is None


@pytest.mark.parametrize("decay", [1200, 2000, 3000])
def test_missing_power_is_that_of_all_lags(decay: int) -> None:
    """What the windows' weight takes from a response, and what no window holds, from the tail that both leave."""
    n, window = 16_384, 8192
    response = np.exp(-np.arange(n) / decay) * np.random.default_rng(3).standard_normal(n)
    weight = np.pad(lag_weight(window), (0, n - window))
    tail = band_powers(np.sqrt(1 - weight**2) * response)
    expected = band_powers((1 - weight) * response)
    found = missing_power((weight * response)[:window], tail, window)
    assert 10 * np.log10(np.mean(found / expected)) == pytest.approx(0, abs=1.0)
