"""A ceiling over frequency: between its points, beyond its ends, within a bin."""

import numpy as np
import pytest

from synthesis.ceiling import ceiling_db
from synthesis.conventions import SAMPLE_RATE_HZ
from synthesis.errors import InvalidOption
from synthesis.gain_curve import GainCurve

N_FFT = 8192
FREQUENCY_HZ = np.arange(N_FFT // 2 + 1) * SAMPLE_RATE_HZ / N_FFT


def test_curve_is_interpolated_over_log_frequency() -> None:
    found = ceiling_db(GainCurve([100, 1000, 10_000], [6, 26, 20]), N_FFT)
    near = lambda hz: found[round(hz * N_FFT / SAMPLE_RATE_HZ)]  # noqa: E731
    # Within half a bin, 3 Hz, of the value at the bin.
    assert near(316.2) == pytest.approx(16, abs=0.15)
    assert near(3162) == pytest.approx(23, abs=0.02)
    assert (found[FREQUENCY_HZ < 90] == 6).all()
    assert (found[FREQUENCY_HZ > 10_010] == 20).all()


@pytest.mark.parametrize("n_fft", [8192, 32_768])
def test_bin_holds_lowest_value_nearby(n_fft: int) -> None:
    points_hz, gain_db = [20, 55.5, 56, 500, 501, 23_999], [30, 30, -20, -20, 12, 40]
    found = GainCurve(points_hz, gain_db).least_db(n_fft)
    fine_hz = np.concatenate([np.geomspace(1, 24_000, 200_001), points_hz])
    fine_db = np.interp(np.log(fine_hz), np.log(points_hz), gain_db)
    nearest = np.rint(fine_hz * n_fft / SAMPLE_RATE_HZ).astype(int)
    assert (found[nearest] <= fine_db + 1e-9).all()


@pytest.mark.parametrize(
    ("frequency_hz", "gain_db", "message"),
    [
        ([], [], "1 to 1024"),
        ([100], [1, 2], "as many values"),
        ([0, 100], [1, 2], "above 0 Hz"),
        ([100, 100], [1, 2], "rise"),
        ([200, 100], [1, 2], "rise"),
        ([100, np.nan], [1, 2], "finite"),
        ([100, 200], [1, np.inf], "finite"),
    ],
)
def test_what_is_no_curve_is_rejected(frequency_hz: list[float], gain_db: list[float], message: str) -> None:
    with pytest.raises(InvalidOption, match=message) as caught:
        GainCurve(frequency_hz, gain_db)
    assert caught.value.field == "max_gain_db"
