"""Short filters: better than cut ones, the same at other rates, within their ceiling."""

import numpy as np
import pytest

from synthesis.conventions import DESIGN_N_FFT
from synthesis.errors import InvalidOption
from synthesis.octave_bands import NR_BANDS, band_membership
from synthesis.realisation.residual_power import PathSpectra
from synthesis.realisation.short_fir import at_design_rate, design_fir


def reduction_db(condition: PathSpectra, psd: np.ndarray, taps: np.ndarray, rate: int = 48_000) -> float:
    """Mean over the bands from 50 Hz to 5 kHz."""
    membership = band_membership(NR_BANDS, DESIGN_N_FFT)
    residual = condition.primary - condition.secondary * at_design_rate(taps, rate)
    powers = [(psd * np.abs(each) ** 2) @ membership for each in (condition.primary, residual)]
    return float(np.mean(10 * np.log10(powers[0] / powers[1])))


@pytest.mark.parametrize("n_taps", [512, 1024])
def test_taps_designed_for_their_number_beat_taps_cut_to_it(measured, n_taps):
    conditions, noise = measured
    for each in conditions[:2]:
        long = design_fir([each], noise, 2048)
        short = design_fir([each], noise, n_taps)
        assert len(short) == n_taps
        assert reduction_db(each, noise, short) > reduction_db(each, noise, long[:n_taps]) + 3


def test_twice_the_rate_and_twice_the_taps_do_as_well(condition, pink):
    own = design_fir([condition], pink, 128)
    double = design_fir([condition], pink, 256, sample_rate_hz=96_000)
    found, expected = reduction_db(condition, pink, double, 96_000), reduction_db(condition, pink, own)
    assert found == pytest.approx(expected, abs=1.5)


@pytest.mark.parametrize("ceiling_db", [-6.0, 3.0])
def test_the_ceiling_holds_between_the_bins_too(condition, pink, ceiling_db):
    assert 20 * np.log10(np.abs(np.fft.rfft(design_fir([condition], pink, 256), 1 << 18)).max()) > ceiling_db
    taps = design_fir([condition], pink, 256, max_gain_db=ceiling_db)
    assert 20 * np.log10(np.abs(np.fft.rfft(taps, 1 << 18)).max()) <= ceiling_db + 0.01


def test_what_cannot_be_designed_is_refused(condition, pink):
    with pytest.raises(InvalidOption, match="whole multiple of 48000"):
        design_fir([condition], pink, 64, sample_rate_hz=44_100)
    with pytest.raises(InvalidOption, match="use 1 to 4096"):
        design_fir([condition], pink, 5000)
