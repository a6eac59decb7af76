"""Tail of a primary path beyond the windows, with and without noise at the error microphone."""

import numpy as np
import pytest
from scipy.signal import fftconvolve

from measurement.estimate import GainTake, probe_states, window_starts
from measurement.tail_power import Tail, band_powers, late_power, tail_power

WINDOW, N_WINDOWS, LAST = 1024, 180, 100_000
# Length of the early responses: the longer, the more leaks out of a window.
HELD = 256
GAIN = 0.5


def paths() -> tuple[np.ndarray, np.ndarray]:
    """Two paths, alike in their early lags; the primary's tail, 20 dB below, begins after three windows."""
    rng = np.random.default_rng(7)
    primary = np.zeros(4 * WINDOW)
    primary[:HELD] = rng.standard_normal(HELD) * np.exp(-np.arange(HELD) / 40)
    secondary, tail = primary.copy(), rng.standard_normal(WINDOW)
    primary[3 * WINDOW :] = 0.1 * np.linalg.norm(primary) * tail / np.linalg.norm(tail)
    return primary, secondary


def takes(snr_db: float | None = None, *, repeats: bool = True) -> list[GainTake]:
    """White noise through both paths."""
    rng = np.random.default_rng(8)
    primary, secondary = paths()
    found, x = [], rng.standard_normal(LAST)
    for gain in (0.0, GAIN):
        if not repeats:
            x = rng.standard_normal(LAST)
        error = fftconvolve(x, primary - gain * secondary)[:LAST]
        if snr_db is not None:
            error = error + np.std(error) * 10 ** (-snr_db / 20) * rng.standard_normal(LAST)
        found.append(GainTake(gain, x, error))
    return found


def found_tail(recorded: list[GainTake]) -> Tail | None:
    first = 4 * WINDOW
    states = probe_states(recorded, window=WINDOW, n_offsets=N_WINDOWS, first_sample=first, last_sample=LAST)
    starts = window_starts(WINDOW, N_WINDOWS, first, LAST)
    return tail_power(recorded, states, window=WINDOW, first_samples=starts)


@pytest.mark.parametrize("snr_db", [None, 20, 10])
def test_late_lags_are_found(snr_db: float | None) -> None:
    """Neither noise nor what the windows leave of the early lags, which both paths share, counts as late."""
    tail = found_tail(takes(snr_db))
    primary, secondary = paths()
    late = late_power(primary[:WINDOW], (primary - GAIN * secondary)[:WINDOW], tail.power - tail.error, WINDOW)
    # One standard error per band is left out.
    assert 0.75 < late.sum() / band_powers(primary[WINDOW:]).sum() < 1.1


def test_nothing_is_reported_where_probe_does_not_repeat() -> None:
    assert found_tail(takes(repeats=False)) is None
