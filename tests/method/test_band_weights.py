"""A target curve of weights in J: what it says, alike on all processors, and what the filters gain by it."""

import numpy as np
import pytest

from model_store.store import DEFAULT_ROOT, ModelStore
from prime_anc.method.band_weights import BandWeights
from prime_anc.method.bands import NR_BANDS, WIDE_BANDS, columns
from prime_anc.method.design import design_all
from prime_anc.method.errors import InvalidOption, answer_or_raise
from prime_anc.method.types import DesignOptions, Fallback, Model
from tests.oracles import measured
from tests.problems import one

PARAMETERS = ModelStore(DEFAULT_ROOT).load("bose-qc20").parameters
# The seven bands from 50 to 200 Hz alone.
LOW = BandWeights([200, 215], [10, 0])
TILTED = BandWeights([50, 500, 5000], [4, 1, 0])
MODEL = Model.on("cpu", PARAMETERS)


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


@pytest.mark.measured
def test_measured_ears_gain_where_weights_are(ears: list[measured.MeasuredEar]) -> None:
    """With a latency, which must be paid somewhere, 50 to 200 Hz gain 5.2 dB in the mean of six ears."""
    low = slice(WIDE_BANDS.index(17), WIDE_BANDS.index(23) + 1)
    found_db = []
    for weights in (None, LOW):
        problems = [
            one(
                np.float32(ear.estimated_primary),
                np.float32(ear.estimated_secondary),
                latency_samples=30.0,
                band_weights=weights,
            )
            for ear in ears
        ]
        made = design_all(problems, DesignOptions("prime", 3), MODEL, Fallback())
        found_db.append([answer_or_raise(item).prediction.band_reduction_db[low].mean() for item in made])
    gained_db = np.diff(found_db, axis=0)
    assert gained_db.mean() > 4.5
    assert gained_db.min() > 3.5
