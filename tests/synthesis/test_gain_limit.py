"""The ceiling: kept between the bins too, at little cost, and without a trace where it does not bind."""

import numpy as np
import pytest
import torch
from scipy.linalg import solve_toeplitz

from model_store.store import DEFAULT_ROOT, ModelStore
from synthesis.backends import DesignInput
from synthesis.backends.base import Condition
from synthesis.backends.cpu import CpuBackend
from synthesis.backends.methods import projected_ratio
from synthesis.conventions import DESIGN_N_FFT, N_TAPS, SAMPLE_RATE_HZ
from synthesis.gain_curve import GainCurve, ceiling_db
from synthesis.gauss_newton import TapObjective
from synthesis.octave_bands import NR_BANDS, WIDE_BANDS, band_membership
from synthesis.paths import AcousticPaths
from synthesis.profiles import FAST
from synthesis.starting_weight import fir_wiener
from tests.oracles import gain_limit
from tests.synthesis.cases import Case, random_case, relative_error

Pair = tuple[np.ndarray, np.ndarray]

FINE = 4 * DESIGN_N_FFT
CORE = CpuBackend(ModelStore(DEFAULT_ROOT).load("default").parameters)
NOTCHED = GainCurve([20, 90, 100, 120, 1000, 4000, 4001], [20, 20, -10, 12, 0, 6, 3])


@pytest.fixture(scope="module")
def case() -> Case:
    return random_case(n_cases=2, n_fft=DESIGN_N_FFT, seed=4)


def pairs_of(case: Case) -> list[Pair]:
    return list(zip(case.primary, case.secondary, strict=True))


def limited(
    taps: np.ndarray, pairs: list[Pair], psd: np.ndarray, max_gain_db: float | GainCurve, *weights: float
) -> np.ndarray:
    first, *others = [[each.astype(np.complex64) for each in pair] for pair in pairs]
    weight, *rest = weights or [1.0] * len(pairs)
    conditions = tuple(Condition(*each, weight=own) for each, own in zip(others, rest, strict=True))
    ear = DesignInput(*first, reference_psd=psd.astype(np.float32), weight=weight, others=conditions)
    return CORE.limit_gain(ear, taps.astype(np.float32), ceiling_db(max_gain_db, DESIGN_N_FFT))


def excess_db(taps: np.ndarray, max_gain_db: float | GainCurve) -> float:
    """On a grid four times as fine as the design's, without the package's own curve."""
    response_db = 20 * np.log10(np.abs(np.fft.rfft(taps, FINE)) + 1e-30)
    if not isinstance(max_gain_db, GainCurve):
        return float(response_db.max() - max_gain_db)
    frequency_hz = np.maximum(np.arange(len(response_db)) * SAMPLE_RATE_HZ / FINE, max_gain_db.frequency_hz[0])
    limit_db = np.interp(np.log(frequency_hz), np.log(max_gain_db.frequency_hz), max_gain_db.gain_db)
    return float((response_db - limit_db).max())


def noise_reduction_db(taps: np.ndarray, pair: Pair, psd: np.ndarray) -> float:
    primary, secondary = pair
    membership = band_membership(NR_BANDS, DESIGN_N_FFT)
    residual = primary - secondary * np.fft.rfft(taps, DESIGN_N_FFT)
    before, after = (psd * np.abs(each) ** 2 @ membership for each in (primary, residual))
    return float(np.mean(10 * np.log10(before / after)))


@pytest.mark.parametrize("max_gain_db", [6.0, -3.0, -20.0, NOTCHED])
def test_it_is_kept_between_the_bins_too(case: Case, max_gain_db: float | GainCurve) -> None:
    for pair in pairs_of(case):
        found = limited(fir_wiener(*pair), [pair], case.reference_psd, max_gain_db)
        assert excess_db(found, max_gain_db) < 0.1
        assert found.shape == (N_TAPS,)


@pytest.mark.measured
@pytest.mark.parametrize("max_gain_db", [24.0, 6.0, GainCurve([100, 1000, 8000], [-6, 3, -10])])
def test_it_is_the_twin_s(measured_case: Case, max_gain_db: float | GainCurve) -> None:
    psd = measured_case.reference_psd.astype(np.float32)
    for pair in pairs_of(measured_case)[::7]:
        single = [each.astype(np.complex64).astype(complex)[None] for each in pair]
        start = fir_wiener(*pair).astype(np.float32)
        limit_db = ceiling_db(max_gain_db, DESIGN_N_FFT)
        if gain_limit.excess_db(start, limit_db) <= 0:
            continue
        expected = gain_limit.limit_gain(start, *single, psd, limit_db)
        found = limited(start, [pair], psd, max_gain_db)
        # Rounds pass on what single precision leaves of each. Measured: 2e-3, or 7e-3 and 0.03 dB where an excess
        # on the edge makes one more round. Steep curves, which the rounds do not come near, lead anywhere.
        assert relative_error(found, expected) < 0.02
        own_db, expected_db = (noise_reduction_db(each, pair, psd) for each in (found, expected))
        assert own_db == pytest.approx(expected_db, abs=0.05)


def test_several_conditions_share_the_gain(case: Case) -> None:
    """One filter for two pairs of paths serves both."""
    both = pairs_of(case)
    start = fir_wiener(*both[0])
    start = start * 10 ** (0.05 * (1 - excess_db(start, 0.0)))  # which exceeds the ceiling by 1 dB
    joint, leaning = (limited(start, both, case.reference_psd, 0.0, *weights) for weights in ((1, 1), (1, 30)))
    assert max(excess_db(each, 0.0) for each in (joint, leaning)) < 0.1
    for pair in both:
        assert noise_reduction_db(joint, pair, case.reference_psd) > noise_reduction_db(
            start / 2, pair, case.reference_psd
        )
    joint_db, leaning_db = (noise_reduction_db(each, both[1], case.reference_psd) for each in (joint, leaning))
    assert leaning_db > joint_db


def converged(pair: Pair, psd: np.ndarray, limit_db: float) -> np.ndarray:
    """The filter of 120 rounds with direct solves, scaled down to the ceiling."""
    stride = DESIGN_N_FFT // FAST.n_fft
    p, s = (each[::stride] for each in pair)
    asked = np.full(len(p), 10 ** (limit_db / 20))
    problem = gain_limit._Problem(*(each[None] for each in pair), psd, asked)
    taps, multiplier, weight = np.zeros(N_TAPS), np.zeros(len(p)), np.ones(len(p))
    for number in range(120):
        response = np.fft.rfft(taps, FAST.n_fft)
        latest = problem._weight(problem._gradient((p - s * response)[None]))[0]
        weight = np.sqrt(weight * latest) if number else latest
        wanted = weight * np.abs(s) ** 2
        damping = 1e-6 * wanted.mean()
        if number:
            scaled = (wanted + multiplier + damping) * (np.abs(response) / problem._limit) ** 2
            multiplier = np.maximum(scaled - wanted - damping, 0)
        column = np.fft.irfft(wanted + multiplier + damping)[:N_TAPS]
        taps = solve_toeplitz(column, np.fft.irfft(weight * s.conj() * p)[:N_TAPS])
    return taps * min(1.0, 10 ** (-problem.excess_db(np.fft.rfft(taps, FAST.n_fft)) / 20))


@pytest.mark.measured
@pytest.mark.parametrize("limit_db", [12.0, 6.0, 0.0])
def test_on_measured_ears_it_comes_near_the_optimum(measured_case: Case, limit_db: float) -> None:
    """On the estimates themselves, of which the optimum cancels the errors too: 0.6 to 0.9 dB of noise reduction
    below 120 rounds with direct solves in the mean, 1.7 at most, from a good start and from one 40 dB too large."""
    psd, losses = measured_case.reference_psd, []
    for pair in pairs_of(measured_case)[::7]:
        best_db = noise_reduction_db(converged(pair, psd, limit_db), pair, psd)
        for start in (fir_wiener(*pair), projected_ratio(*pair)):
            found = limited(start, [pair], psd, limit_db)
            assert excess_db(found, limit_db) < 0.1
            losses.append(best_db - noise_reduction_db(found, pair, psd))
    assert np.mean(losses) < 1.2, losses
    assert max(losses) < 2.5, losses


def test_it_weighs_as_the_updates_do(case: Case) -> None:
    """v |S|^2 is the symbol of their undamped normal matrix, and above the scored bands the ceiling is theirs."""
    pair, n_fft = pairs_of(case)[0], FAST.n_fft
    stride = DESIGN_N_FFT // n_fft
    psd = torch.from_numpy(gain_limit._collected(case.reference_psd, stride))
    paths = AcousticPaths(*(torch.from_numpy(each[None, ::stride].copy()) for each in pair))
    objective = TapObjective(paths, psd, FAST, 300.0)
    residual = paths.primary - paths.secondary * torch.fft.rfft(torch.from_numpy(fir_wiener(*pair))[None], n=n_fft)
    symbol, _ = objective.normal_equations(paths, residual, 0 * residual, objective.band_power(residual))
    limit = np.full(n_fft // 2 + 1, 1e9)
    problem = gain_limit._Problem(*(each[None] for each in pair), case.reference_psd, limit)
    weight = problem._weight(problem._gradient(residual.numpy()))[0]
    found, expected = weight * np.abs(paths.secondary[0].numpy()) ** 2 * n_fft, symbol[0].numpy()
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-9 * expected.max())
    assert objective.ceiling is not None
    is_high = band_membership(WIDE_BANDS[-4:], n_fft).any(-1)
    np.testing.assert_allclose(problem._limit[is_high], objective.ceiling[0].numpy()[is_high], rtol=1e-6)
