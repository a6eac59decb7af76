"""The three variants of a secondary path."""

import numpy as np
import pytest

from training.datasets.simulated import simulate_listeners
from training.datasets.variants import secondary_variants

ORIGINAL = simulate_listeners(1).pairs[0]


def level_db(response: np.ndarray) -> np.ndarray:
    return 20 * np.log10(np.abs(np.fft.rfft(response, 65536)))


def test_each_variant_does_what_record_says() -> None:
    gain_delay, tilt, tail = secondary_variants(ORIGINAL, seed=5)
    secondary = ORIGINAL.secondary
    assert [pair.condition for pair in (gain_delay, tilt, tail)] == ["gain_delay", "tilt", "tail"]

    assert gain_delay.variant["extra_delay_samples"] == 1
    scale = 10 ** (gain_delay.variant["gain_db"] / 20)
    np.testing.assert_allclose(gain_delay.secondary[1:], scale * secondary[:-1], rtol=1e-12)
    assert gain_delay.secondary[0] == 0

    change_db = level_db(tilt.secondary) - level_db(secondary)
    bin_hz = 48000 / 65536
    for frequency_hz, share in ((20, -1), (632.5, 0), (20000, 1)):
        # 0.05 dB: the tilt's own response is cut with the path at 8192 samples.
        assert change_db[round(frequency_hz / bin_hz)] == pytest.approx(share * tilt.variant["tilt_db"], abs=0.05)

    np.testing.assert_array_equal(tail.secondary[:48], secondary[:48])
    np.testing.assert_allclose(tail.secondary[48:], tail.variant["tail_scale"] * secondary[48:], rtol=1e-12)
