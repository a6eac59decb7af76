"""J in NumPy: the compiled core's own for one condition and several, its slopes, and what it prefers."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from model_store.store import DEFAULT_ROOT, ModelStore
from prime_anc.core import Core
from prime_anc.method.bands import NR_BANDS, WIDE_BANDS, band_membership, collected
from prime_anc.method.conventions import DESIGN_N_FFT
from prime_anc.method.design import design, predict_all
from prime_anc.method.methods import spectrum
from prime_anc.method.profiles import FAST, FINE, PROFILES, SILENCE, RefinementProfile
from prime_anc.method.types import DesignOptions, Model, Paths, Problem
from prime_anc.method.updates.band_weights import BandWeights
from prime_anc.method.updates.objective import objective
from tests.model_store import cases
from tests.oracles.measured import MeasuredEar
from tests.problems import open_loop

STRIDE = DESIGN_N_FFT // FINE.n_fft
PARAMETERS = ModelStore(DEFAULT_ROOT).load("bose-qc20").parameters
WEIGHTS = BandWeights([50, 500, 5000], [4, 1, 0])
WEIGHTED = replace(FAST, band_weights=WEIGHTS.relative())


@pytest.fixture(scope="module")
def backend() -> Iterator[Core]:
    """The core, with a profile `fine` without a penalty on |W|: J alone."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(PROFILES, FINE.name, replace(FINE, ceiling_weight=0.0))
        yield Core(PARAMETERS)


def log_ratios(ear: Problem, taps: np.ndarray) -> np.ndarray:
    """ln(E / D) of each condition and band on the grid of the profile `fine`, with the expected error for E."""
    membership = band_membership(WIDE_BANDS, FINE.n_fft)
    power = collected(torch.from_numpy(PARAMETERS.reference_psd.astype(np.float64)), STRIDE).numpy()
    found = []
    for condition in ear.conditions:
        primary, secondary, response = (
            spectrum(path)[::STRIDE] for path in (condition.primary, condition.secondary, taps)
        )
        played = secondary * response
        before, after, control = (
            (power * np.abs(e) ** 2) @ membership for e in (primary, primary - played, played)
        )
        of_primary, of_secondary = np.zeros((2, 31)) if condition.uncertainty is None else condition.uncertainty
        expected, whole = after + of_primary * before + of_secondary * control, (1 + of_primary) * before
        found.append(np.log((expected / before.sum() + SILENCE) / (whole / before.sum() + SILENCE)))
    return np.stack(found)


@pytest.mark.parametrize(
    "weights",
    [{}, {"risk_weight": 3.0}, {"band_weights": WEIGHTS}, {"max_louder_db": 0.0}],
    ids=["none", "risk", "bands", "louder"],
)
@pytest.mark.parametrize(("n_conditions", "unknown"), [(1, 0.01), (4, 0), (4, 0.01)])
def test_objective_equals_core(backend: Core, n_conditions: int, unknown: float, weights: dict[str, Any]) -> None:
    """The loudspeaker is six samples late, so that bands become louder."""
    shares = unknown * np.random.default_rng(6).random((n_conditions, 2, 31), np.float32)
    conditions = []
    for seed, uncertainty in enumerate(shares):
        primary, secondary, _ = cases.ear(seed)
        conditions.append(Paths(primary, np.pad(secondary, (6, 0)), weight=1 + seed % 3, uncertainty=uncertainty))
    ear = Problem(tuple(conditions), **weights)
    profile = replace(FINE, **ear.weights)
    assert (profile != FINE) == bool(weights)
    aim = open_loop(ear, PARAMETERS.reference_psd)
    (design,) = backend.filters([aim], DesignOptions("fir_wiener", 2, FINE.name))
    reached, levels = design.refinement.objective[-1], log_ratios(ear, design.taps)
    # The core works in single precision, and takes far updates on a grid of twice the points; E may be 110 dB below D.
    given = levels, ear.shares
    for values in (given, map(torch.from_numpy, given)):
        expected, _ = objective(*values, profile)
        assert reached == pytest.approx(float(expected), abs=0.05 if "max_louder_db" in weights else 1e-2)
    if n_conditions > 1:  # or the case shows nothing of the weights
        equal = np.full(n_conditions, 1 / n_conditions)
        assert abs(objective(levels, equal, profile)[0] - reached) > 0.01
        if weights:
            assert abs(objective(levels, ear.shares, FAST)[0] - reached) > 0.02


@pytest.mark.parametrize("profile", [FAST, WEIGHTED, replace(FAST, max_louder_db=1.0)])
def test_slopes_are_derivatives(profile: RefinementProfile) -> None:
    random = np.random.default_rng(0)
    levels, share = random.uniform(-4, 1, (2, len(WIDE_BANDS))), np.array([0.7, 0.3])
    value, slope = objective(levels, share, profile)
    step = 1e-6
    for place in [(0, 0), (0, 12), (1, 5), (1, 30)]:
        moved = levels.copy()
        moved[place] += step
        assert (objective(moved, share, profile)[0] - value) / step == pytest.approx(slope[place], rel=1e-4)


def test_limit_holds_louder_bands(ears: list[MeasuredEar], measured_psd: np.ndarray) -> None:
    """With a latency, which makes bands above 5 kHz up to 10 dB louder."""
    model, options = Model.on("cpu", PARAMETERS), DesignOptions("prime", 3, FINE.name)
    loudest_db = []
    for item in ears[::2]:
        paths = Paths(item.primary.astype(np.float32), item.secondary.astype(np.float32))
        posed = Problem((paths,), latency_samples=4.0, exact=True, reference_psd=measured_psd.astype(np.float32))
        for problem in (posed, replace(posed, max_louder_db=3.0)):
            (found,) = predict_all([problem], [design(problem, options, model).taps], model, is_true=True)
            loudest_db.append(-found.band_reduction_db.min())
    assert max(loudest_db[::2]) > 6
    assert max(loudest_db[1::2]) < 4.5


def test_objective_counts_worst_band() -> None:
    """A band outside 50 Hz to 5 kHz enters by the risk alone, and the more the louder it is."""
    quiet = np.full((1, len(WIDE_BANDS)), -3.0)
    share = np.ones(1)
    before, _ = objective(quiet, share, FAST)
    assert before == pytest.approx(-3.0 * (1 + 0.4))
    outside = WIDE_BANDS.index(NR_BANDS[0]) - 1
    costs = []
    for level in (0.0, 3.0):
        louder = quiet.copy()
        louder[0, outside] = level
        costs.append(float(objective(louder, share, FAST)[0] - before))
    # 0.4 ln((30 + e^3) / 31) and 0.4 ln((30 + e^6) / 31).
    assert costs == pytest.approx([0.4 * np.log((30 + np.exp(3 * n)) / 31) for n in (1, 2)])
