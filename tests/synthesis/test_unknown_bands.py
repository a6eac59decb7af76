"""Bands of which nothing is known, and filters that keep them quiet."""

import numpy as np
import pytest
from scipy.signal import firwin

from synthesis.bands import ABSENT, UNKNOWN, WIDE_BANDS
from synthesis.ceiling import LOUDEST_DB, quiet_gain
from synthesis.conventions import DESIGN_N_FFT, N_BINS, N_TAPS
from synthesis.design import with_silence
from synthesis.types import Paths, Problem


@pytest.mark.parametrize("sign", [1, -1])
def test_gain_keeps_unknown_band_quiet(sign: int) -> None:
    """A loudspeaker in phase with the noise, and one that cancels it three times over."""
    primary, secondary = np.full(N_BINS, 0.5 + 0j, np.complex64), np.full(N_BINS, 2 + 0j, np.complex64)
    unknown = (np.arange(len(WIDE_BANDS)) < 13).astype(np.uint8)  # 20 to 315 Hz
    taps = np.zeros(N_TAPS, np.float32)
    taps[0] = sign * 0.75
    conditions = (Paths(primary, secondary), Paths(primary, secondary, unknown=unknown))
    gain = quiet_gain(Problem(conditions), taps)
    louder_db = 20 * np.log10(abs(0.5 - 2 * gain * taps[0]) / 0.5)
    assert louder_db == pytest.approx(LOUDEST_DB, abs=1e-3)
    assert quiet_gain(Problem(conditions), gain * taps / 2) == 1
    assert quiet_gain(Problem(conditions[:1]), taps) == 1


@pytest.mark.parametrize("as_spectrum", [False, True])
def test_silence_is_unknown_or_absent(as_spectrum: bool) -> None:
    """A cup that lets nothing through above 2 kHz, in front of a loudspeaker that plays up to 6 kHz."""
    ends_hz = (2000, 6000)
    pair = [firwin(1023, end, window=("kaiser", 9), fs=48_000).astype(np.float32) for end in ends_hz]
    if as_spectrum:
        pair = [np.fft.rfft(item, DESIGN_N_FFT).astype(np.complex64) for item in pair]
    found = with_silence(Paths(*pair))
    known, n = found.unknown, np.array(WIDE_BANDS)
    assert known is not None
    assert not known[n <= 32].any()  # up to 1.6 kHz
    assert (known[(n >= 34) & (n <= 37)] == UNKNOWN).all()  # 2.5 to 5 kHz
    assert (known[n >= 39] == ABSENT).all()  # from 8 kHz
    np.testing.assert_array_equal(found.silent, known > 0)
