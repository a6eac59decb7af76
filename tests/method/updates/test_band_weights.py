"""A target curve of weights in J: what it says, and what is no curve."""

import numpy as np
import pytest

from prime_anc.method.bands import NR_BANDS, columns
from prime_anc.method.errors import InvalidOption
from prime_anc.method.updates.band_weights import BandWeights

TILTED = BandWeights([50, 500, 5000], [4, 1, 0])


def test_weights_are_read_at_centres_over_their_mean() -> None:
    relative = TILTED.relative()
    given = np.array(relative)[columns(NR_BANDS)]
    assert given.mean() == pytest.approx(1)
    assert np.count_nonzero(relative) == len(NR_BANDS) - 1  # all but 5 kHz
    centre_hz = 10 ** (np.array(NR_BANDS) / 10)
    expected = np.interp(np.log(centre_hz), np.log(TILTED.frequency_hz), TILTED.weight)
    np.testing.assert_allclose(given / given[5], expected / expected[5], rtol=1e-12)


@pytest.mark.parametrize(
    ("frequency_hz", "weight", "message"),
    [
        ([100, 200], [1, -0.1], "negative"),
        ([20, 49, 50.1, 5100, 6000], [9, 9, 0, 0, 1], "0 in all bands"),
        ([200, 100], [1, 2], "rise"),
    ],
)
def test_what_weighs_nothing_is_rejected(frequency_hz: list[float], weight: list[float], message: str) -> None:
    with pytest.raises(InvalidOption, match=message) as caught:
        BandWeights(frequency_hz, weight)
    assert caught.value.field == "band_weights"
