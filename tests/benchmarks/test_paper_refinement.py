"""The paper's refinement at its own sizes: the dense float64 twin's steps, and the textbook's operators."""

import numpy as np
import pytest
import torch

from benchmarks import paper_refinement
from benchmarks.paper_refinement import PAPER, GridOperator, Settings, refine
from synthesis.octave_bands import WIDE_BANDS
from tests.oracles import gauss_newton as oracle
from tests.oracles import toeplitz
from tests.oracles.octave_bands import AMP_BANDS
from tests.oracles.octave_bands import WIDE_BANDS as ORACLE_WIDE
from tests.synthesis.cases import SMALL_N_TAPS, Case, random_case, relative_error

EXACT = 4 * SMALL_N_TAPS
"""Iterations after which conjugate gradients have solved so small a system."""


def problem(case: Case, item: int, risk_bands: range, risk_weight: float) -> oracle.Problem:
    return oracle.Problem(case.primary[item], case.secondary[item], case.reference_psd, risk_bands, risk_weight)


def test_the_operator_is_the_dense_matrix() -> None:
    rng = np.random.default_rng(0)
    weight = rng.random((1, 513))
    weight[:, [0, -1]] = 0
    operator = GridOperator(torch.from_numpy(weight), torch.tensor([[0.5]], dtype=torch.float64), 40)
    vector = rng.standard_normal(40)
    dense = toeplitz.dense(toeplitz.normal_column(weight[0], 40)) + 0.5 * np.eye(40)
    assert relative_error(operator @ torch.from_numpy(vector[None]), (dense @ vector)[None]) < 1e-12


@pytest.mark.parametrize(
    ("settings", "bands", "weight"),
    [
        (Settings(n_iterations=EXACT), AMP_BANDS, 0.05),
        (Settings(WIDE_BANDS, 0.2, n_iterations=EXACT), ORACLE_WIDE, 0.2),
    ],
    ids=["paper", "wide"],
)
def test_updates_are_the_twin_s(
    settings: Settings, bands: range, weight: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paper_refinement, "TOLERANCE", 1e-12)
    case = random_case()
    start = np.zeros((3, SMALL_N_TAPS))
    start[:, 0] = 0.3
    taps, residuals = refine(case.paths(), torch.from_numpy(start), case.psd(), 2, settings)
    assert residuals.shape == (3, 2)
    for item in range(3):
        twin = problem(case, item, bands, weight)
        base = case.primary[item] * case.secondary[item].conj()
        power = np.abs(case.secondary[item]) ** 2
        base_rms = oracle.response_rms(twin, base / (power + (1e-4) ** 2 * power.max()))
        expected = start[item]
        for _ in range(2):
            step = oracle.capped(twin, oracle.full_step(twin, expected), base_rms)
            expected, scale = oracle.backtrack(twin, expected, step)
            assert scale > 0
        # The tolerance times the damped matrix's condition, at most 1 / 0.002 times the band weights' range.
        assert relative_error(taps[item : item + 1], expected[None]) < 1e-8


def test_the_preconditioner_changes_no_iterate() -> None:
    """The reason why the paper's needs so many iterations: a Toeplitz matrix has a constant diagonal."""
    from synthesis.conjugate_gradients import conjugate_gradients

    case = random_case()
    symbol = torch.from_numpy(np.abs(case.secondary) ** 2)
    symbol[:, [0, -1]] = 0
    operator = GridOperator(symbol, torch.full((3, 1), 1e-3, dtype=torch.float64), SMALL_N_TAPS)
    rhs = torch.from_numpy(np.random.default_rng(0).standard_normal((3, SMALL_N_TAPS)))

    class Half:
        def __matmul__(self, vector: torch.Tensor) -> torch.Tensor:
            return vector / 2

    plain = conjugate_gradients(operator, rhs, n_iterations=5).value
    scaled = conjugate_gradients(operator, rhs, Half(), n_iterations=5).value
    assert relative_error(scaled, plain) < 1e-12


def test_no_update_changes_nothing() -> None:
    case = random_case()
    taps = torch.randn(3, SMALL_N_TAPS, dtype=torch.float64)
    found, residuals = refine(case.paths(), taps, case.psd(), 0, PAPER)
    assert torch.equal(found, taps)
    assert residuals.shape == (3, 0)
