"""The ceiling that keeps bands quiet of which nothing is known."""

import numpy as np
import pytest
from scipy.signal import firwin

from synthesis.bands import ABSENT, UNKNOWN, WIDE_BANDS, band_membership
from synthesis.ceiling import quiet_db
from synthesis.conventions import DESIGN_N_FFT, N_BINS, N_TAPS
from synthesis.design import with_silence
from synthesis.types import Paths


def test_unknown_band_gets_at_most_a_decibel_louder() -> None:
    """Even where the loudspeaker's sound at the ceiling adds to the disturbance in phase."""
    frequency_hz = np.arange(N_BINS) * 48_000 / DESIGN_N_FFT
    primary, secondary = np.full(N_BINS, 0.5 + 0j, np.complex64), np.full(N_BINS, 2 + 0j, np.complex64)
    unknown_bands = np.arange(len(WIDE_BANDS)) < 13  # 20 to 315 Hz
    loud = np.zeros(N_TAPS, np.float32)
    loud[0] = -1
    limit_db = quiet_db(Paths(primary, secondary, unknown=unknown_bands), loud)
    assert limit_db is not None
    unknown = band_membership(WIDE_BANDS, DESIGN_N_FFT)[:, unknown_bands].sum(-1) > 0
    in_phase = np.abs(primary) + np.abs(secondary) * 10 ** (limit_db / 20)
    louder_db = 20 * np.log10(in_phase[unknown] / np.abs(primary[unknown]))
    assert 0 < louder_db.min() <= louder_db.max() < 1
    assert np.isinf(limit_db[frequency_hz > 1000]).all()


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
