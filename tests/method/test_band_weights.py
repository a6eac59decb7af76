"""A target curve of weights in J: what it says, alike on all processors, and what the filters gain by it."""

from dataclasses import replace

import numpy as np
import pytest

from model_store.store import DEFAULT_ROOT, ModelStore
from prime_anc.method.band_weights import BandWeights
from prime_anc.method.bands import NR_BANDS, WIDE_BANDS, columns
from prime_anc.method.design import design, design_all
from prime_anc.method.errors import InvalidOption
from prime_anc.method.types import Design, DesignOptions, Fallback, Model, Paths, Problem
from tests.method.cases import relative_error
from tests.model_store import cases
from tests.oracles import measured
from tests.problems import one

PARAMETERS = ModelStore(DEFAULT_ROOT).load("bose-qc20").parameters
# The seven bands from 50 to 200 Hz alone.
LOW = BandWeights([200, 215], [10, 0])
TILTED = BandWeights([50, 500, 5000], [4, 1, 0])
ALIKE = BandWeights([100, 1000], [2.5, 2.5])
MODEL = Model.on("cpu", PARAMETERS)


@pytest.fixture(scope="module")
def model() -> Model:
    return Model.on("reference", PARAMETERS)


def several(n: int, **options: object) -> Problem:
    """An ear in n conditions."""
    return Problem(tuple(Paths(*cases.ear(seed)[:2], weight=1 + seed) for seed in range(n)), **options)  # type: ignore[arg-type]


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


@pytest.mark.parametrize("n_conditions", [1, 3])
def test_equal_weights_change_no_bit(model: Model, n_conditions: int) -> None:
    options = DesignOptions("prime", 3)
    plain, weighted = (
        design(several(n_conditions, band_weights=item), options, model, Fallback()) for item in (None, ALIKE)
    )
    assert np.array_equal(plain.taps, weighted.taps)
    assert plain.refinement == weighted.refinement


# The single condition is cancelled by 90 dB, whose filter a ceiling would decide by rounding.
@pytest.mark.parametrize(("n_conditions", "max_gain_db"), [(1, 300.0), (3, 30.0), (3, -6.0)])
def test_weighted_filter_equals_core(model: Model, n_conditions: int, max_gain_db: float) -> None:
    ear, options = several(n_conditions, max_gain_db=max_gain_db, band_weights=TILTED), DesignOptions("wmmse", 2)
    expected = design(ear, options, Model.on("cpu", PARAMETERS))
    found = design(ear, options, model)
    found_db, expected_db = (item.prediction.mean_noise_reduction_db for item in (found, expected))
    assert found_db == pytest.approx(expected_db, abs=0.05)
    if max_gain_db > 0:  # below a ceiling, rounding decides which round is the last
        # Single precision through two steps: measured 2e-4.
        assert relative_error(found.taps, expected.taps) < 2e-3
    np.testing.assert_allclose(found.refinement.objective, expected.refinement.objective, atol=0.02)
    unweighted = design(replace(ear, band_weights=None), options, model)
    assert relative_error(unweighted.taps, expected.taps) > 0.03


@pytest.mark.measured
@pytest.mark.parametrize(("latency_samples", "mean_db", "least_db"), [(0.0, 0.15, -0.05), (30.0, 4.5, 3.5)])
def test_measured_ears_gain_where_weights_are(
    ears: list[measured.MeasuredEar], latency_samples: float, mean_db: float, least_db: float
) -> None:
    """50 to 200 Hz gain 0.26 dB in the mean of six ears; with a latency, which must be paid somewhere, 5.2 dB."""
    problems = [
        one(
            *(item.astype(np.float32) for item in (case.estimated_primary, case.estimated_secondary)),
            latency_samples=latency_samples,
        )
        for case in ears
    ]
    low = slice(WIDE_BANDS.index(17), WIDE_BANDS.index(23) + 1)

    def reduction_db(weights: BandWeights | None) -> np.ndarray:
        weighted = [replace(problem, band_weights=weights) for problem in problems]
        made = design_all(weighted, DesignOptions("prime", 3), MODEL, Fallback())
        assert all(isinstance(item, Design) for item in made)
        return np.array([item.prediction.band_reduction_db[low].mean() for item in made])  # type: ignore[union-attr]

    gained_db = reduction_db(LOW) - reduction_db(None)
    assert gained_db.mean() > mean_db
    assert gained_db.min() > least_db
