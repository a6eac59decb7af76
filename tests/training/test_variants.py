"""The three variants of a secondary path, and mixtures of neighbouring support listeners."""

from dataclasses import replace

import numpy as np
import pytest

from training.datasets.path_pairs import PathPair
from training.datasets.simulated import simulate_listeners
from training.datasets.variants import secondary_variants
from training.training_set import draw_mixtures, order_listeners

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


def pair(number: int, ear: str = "left", gain: float = 1.0) -> PathPair:
    response = gain * np.exp(-np.arange(64) / (4 + number))
    return PathPair(f"person-{number:02d}", ear, "original", "normal", response, response[::2])


NUMBERS = (2, 5, 6, 11, 16, 20, 23)
ORIGINALS = [pair(number, ear) for number in NUMBERS for ear in ("left", "right")]
SUPPORT = ORIGINALS + [variant for original in ORIGINALS for variant in secondary_variants(original, 0)]
ORDER = tuple(f"person-{number:02d}" for number in NUMBERS)


def test_mixtures_join_adjacent_listeners() -> None:
    mixtures = draw_mixtures(SUPPORT, ORDER)
    assert len(mixtures) == 96
    for mixture in mixtures:
        first, second = SUPPORT[mixture.first], SUPPORT[mixture.second]
        assert (first.ear, first.condition) == (second.ear, second.condition)
        assert ORDER.index(second.listener) - ORDER.index(first.listener) == 1
        assert 0 <= mixture.alpha < 1
    # Six neighbourhoods, two ears, four conditions: 48 couples, two mixtures each.
    assert len({(m.first, m.second) for m in mixtures}) == 48
    assert len({m.alpha for m in mixtures}) == 96


def test_listener_without_ear_is_stepped_over() -> None:
    pairs = [pair(2), pair(5, "right"), pair(6)]
    order = ("person-02", "person-05", "person-06")
    assert {(m.first, m.second) for m in draw_mixtures(pairs, order)} == {(0, 2)}


def test_ten_paths_are_ordered() -> None:
    # The listeners differ in level alone, so the first component is the level, whatever their numbers.
    gains = {1: 1.0, 2: 8.0, 3: 2.0, 4: 0.5, 5: 4.0}
    pairs = [replace(pair(1, "mono", gain), listener=f"path-{number:02d}") for number, gain in gains.items()]
    expected = ("path-04", "path-01", "path-03", "path-05", "path-02")
    assert order_listeners(pairs, "ten-path") in (expected, expected[::-1])
    assert order_listeners(pairs, "pandar") == tuple(sorted(expected))
