"""One filter for several conditions: objective and normal equations against dense float64 twins, and the limits."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from synthesis.paths import AcousticPaths
from synthesis.profiles import FAST, PAPER, RefinementProfile
from synthesis.start.fir_wiener import fir_wiener
from synthesis.start.wiener import design_wmmse
from synthesis.tap_objective import TapObjective
from synthesis.update import refine
from tests.oracles import fir_wiener as wiener_oracle
from tests.oracles import joint_objective as oracle
from tests.oracles import toeplitz as toeplitz_oracle
from tests.synthesis.cases import SMALL_N_TAPS, Case, both, relative_error
from tests.synthesis.test_update import EXACT, SILENCE_ATOL, base_taps, linearised, on_grid, problems, value

SHARES = np.array([0.5, 0.3, 0.2])
PROFILES = pytest.mark.parametrize("profile", [PAPER, FAST], ids=["paper", "fast"])


def start(paths: AcousticPaths) -> torch.Tensor:
    """The mean of the conditions' ratio-base filters, [1, n_taps]."""
    return base_taps(paths).mean(0, keepdim=True)


@PROFILES
@pytest.mark.parametrize("max_gain_db", [None, -6.0])
def test_the_objective_is_the_twins(
    small_case: Case, profile: RefinementProfile, max_gain_db: float | None
) -> None:
    case = on_grid(small_case, profile)
    paths, shares = case.paths(), torch.from_numpy(SHARES)
    twin = oracle.with_lowest_ceiling(list(problems(case, profile, max_gain_db)))
    for taps in (start(paths), torch.randn(1, SMALL_N_TAPS, dtype=torch.float64)):
        found = value(TapObjective(paths, case.psd(), profile, max_gain_db, shares), paths, taps)
        assert found.shape == (1,)
        assert found.item() == pytest.approx(oracle.objective(twin, SHARES, taps[0].numpy()), abs=SILENCE_ATOL)


@PROFILES
def test_gradient_and_normal_matrix_are_the_dense_ones(small_case: Case, profile: RefinementProfile) -> None:
    case = on_grid(small_case, profile)
    paths = case.paths()
    twin, taps = oracle.with_lowest_ceiling(list(problems(case, profile))), start(paths)
    column, descent = linearised(
        TapObjective(paths, case.psd(), profile, None, torch.from_numpy(SHARES)), paths, taps
    )
    matrix = oracle.normal_matrix(twin, SHARES, taps[0].numpy())
    np.testing.assert_allclose(column[0].numpy(), matrix[:, 0], rtol=0, atol=SILENCE_ATOL * matrix[0, 0])
    # It is Toeplitz, though a sum over conditions.
    np.testing.assert_allclose(matrix[1:, 1:], matrix[:-1, :-1], rtol=0, atol=1e-9 * matrix[0, 0])
    if profile is PAPER:  # the fast one's gradient has the ceiling's part, which autograd holds below
        assert relative_error(descent[0], -oracle.gradient(twin, SHARES, taps[0].numpy())) < SILENCE_ATOL


@pytest.mark.parametrize("max_gain_db", [None, 0.0])
def test_autograd_agrees_with_the_right_hand_side(small_case: Case, max_gain_db: float | None) -> None:
    case = on_grid(small_case, FAST)
    paths = case.paths()
    objective = TapObjective(paths, case.psd(), FAST, max_gain_db, torch.from_numpy(SHARES))
    taps = start(paths).requires_grad_()
    (gradient,) = torch.autograd.grad(value(objective, paths, taps).sum(), taps)
    _, descent = linearised(objective, paths, taps.detach())
    assert relative_error(descent, -gradient) < 1e-10  # two ways through the same float64 transforms


def test_an_exact_update_is_the_twins(small_case: Case) -> None:
    paths, psd, profile = small_case.paths(), small_case.psd(), replace(PAPER, step_cap=None, **EXACT)
    taps = start(paths)
    found = refine(
        paths, taps, psd, n_updates=1, profile=profile, max_gain_db=None, shares=torch.from_numpy(SHARES)
    )
    twin = list(problems(on_grid(small_case, PAPER), PAPER))
    step = oracle.full_step(twin, SHARES, taps[0].numpy())
    before = oracle.objective(twin, SHARES, taps[0].numpy())
    scale = next(
        scale
        for scale in (1.0, 0.5, 0.25)
        if before - oracle.objective(twin, SHARES, taps[0].numpy() + scale * step) > 1e-5 * max(abs(before), 1)
    )
    assert found.step_scale.item() == scale
    # The step's own error: 1e-6 of silence on a damped system of condition 1e3.
    assert relative_error(found.taps[0] - taps[0], scale * step) < 1e-3


def test_the_wiener_filters_are_those_of_the_summed_systems(small_case: Case) -> None:
    paths, shares = small_case.paths(), torch.from_numpy(SHARES)
    generator = torch.Generator().manual_seed(3)
    log_weight, log_penalty = (
        torch.randn(3, paths.n_bins, dtype=torch.float64, generator=generator) - shift for shift in (0.0, 4.0)
    )
    found = fir_wiener(*both(paths), log_weight, log_penalty, shares=shares)
    systems = [
        wiener_oracle.system(p, s, v, q, 2048)
        for p, s, v, q in zip(
            small_case.primary,
            small_case.secondary,
            log_weight.exp().numpy(),
            log_penalty.exp().numpy(),
            strict=True,
        )
    ]
    column, rhs = (np.tensordot(SHARES, np.stack(item), 1) for item in zip(*systems, strict=True))
    residual = toeplitz_oracle.dense(column) @ found.value[0].numpy() - rhs
    # Four iterations of conjugate gradients leave what they say they leave.
    assert np.linalg.norm(residual) / np.linalg.norm(rhs) == pytest.approx(found.residual.item(), rel=1e-3)
    assert found.residual.item() < 0.1
    equal = AcousticPaths.stack([paths[:1]] * 2)
    one, two = (
        design_wmmse(paths[:1], small_case.psd(), 64),
        design_wmmse(equal, small_case.psd(), 64, shares[:2] / 0.8),
    )
    torch.testing.assert_close(two, one, rtol=1e-9, atol=1e-12)
