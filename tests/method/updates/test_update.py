"""Gauss-Newton refinement: objective and derivatives against the twin, and what an update must never do."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from prime_anc.method.arrays import minimum_phase_fir
from prime_anc.method.paths import AcousticPaths
from prime_anc.method.profiles import FAST, FINE, PAPER, STOP_REASONS, RefinementProfile
from prime_anc.method.start.features import log_base_magnitude, regularised_ratio
from prime_anc.method.updates import update
from prime_anc.method.updates.expected_error import weighed
from prime_anc.method.updates.tap_objective import TapObjective
from prime_anc.method.updates.toeplitz import Solution, solve_toeplitz
from prime_anc.method.updates.update import GaussNewtonState, Refinement, refine
from tests.method.cases import SMALL_N_TAPS, Case, relative_error
from tests.oracles import gauss_newton as oracle
from tests.oracles import spectra as spectra_oracle
from tests.oracles.octave_bands import AMP_BANDS, WIDE_BANDS

RISK = {"paper": (AMP_BANDS, 0.05), **dict.fromkeys(("fast", "fine"), (WIDE_BANDS, FAST.risk_weight))}
# More iterations than a small case has taps; steps alone.
EXACT: dict[str, Any] = {"n_iterations": 100, "tolerance": 1e-13, "settles": False}


def base_taps(paths: AcousticPaths, n_taps: int = SMALL_N_TAPS) -> torch.Tensor:
    """The held-band ratio-base FIR."""
    return minimum_phase_fir(
        log_base_magnitude(regularised_ratio(paths.primary, paths.secondary), "held_band"), n_taps
    )


def on_grid(case: Case, profile: RefinementProfile) -> Case:
    """The case as the profile's updates see it: spectra sampled, the reference's power collected."""
    stride = max(1, 2 * (case.n_bins - 1) // profile.n_fft)
    psd = spectra_oracle.collected(case.reference_psd, stride) if stride > 1 else case.reference_psd
    return Case(case.primary[:, ::stride].copy(), case.secondary[:, ::stride].copy(), psd)


def problems(case: Case, profile: RefinementProfile, max_gain_db: float | None = None) -> Iterator[oracle.Problem]:
    """The twin's view of each case, on the case's own grid."""
    for p, s in zip(case.primary, case.secondary, strict=True):
        ceiling = None
        if profile.ceiling_weight > 0:
            requested = np.inf if max_gain_db is None else 10 ** (max_gain_db / 20)
            ceiling = np.minimum(oracle.drive_ceiling(p, s), requested)
        yield oracle.Problem(
            p, s, case.reference_psd, *RISK[profile.name], ceiling, profile.ceiling_weight, profile.damping
        )


@pytest.fixture(params=[PAPER, FAST, FINE], ids=["paper", "fast", "fine"])
def profile(request: pytest.FixtureRequest) -> RefinementProfile:
    """Each profile in turn."""
    found: RefinementProfile = request.param
    return found


@pytest.fixture
def grid_case(small_case: Case, profile: RefinementProfile) -> Case:
    """The small case on the profile's grid."""
    return on_grid(small_case, profile)


def linearised(
    objective: TapObjective, paths: AcousticPaths, taps: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """First column of the normal matrix and minus the gradient, at `taps`."""
    response = torch.fft.rfft(taps, n=paths.n_fft)
    residual = paths.primary - paths.secondary * response
    spectra = objective.normal_equations(paths, residual, response, objective.band_power(residual))
    column, descent = (torch.fft.irfft(item)[:, : taps.shape[-1]] for item in spectra)
    return column, descent


def value(objective: TapObjective, paths: AcousticPaths, taps: torch.Tensor) -> torch.Tensor:
    """J of taps."""
    response = torch.fft.rfft(taps, n=paths.n_fft)
    return objective.value(objective.band_power(paths.primary - paths.secondary * response), response)


@pytest.mark.parametrize(("max_gain_db", "largest"), [(None, 0.0), (-6.0, 1.0)])
def test_autograd_agrees_with_the_right_hand_side_ceiling_included(
    grid_case: Case, profile: RefinementProfile, max_gain_db: float | None, largest: float
) -> None:
    """With up to `largest` of the power of both paths unknown."""
    paths, unknown = grid_case.paths(), largest * torch.rand(3, 2, 31, dtype=torch.float64)
    paths = AcousticPaths(*weighed(paths.primary, paths.secondary, unknown[:, 1]))
    objective = TapObjective(paths, grid_case.psd(), profile, max_gain_db, uncertainty=unknown)
    taps = base_taps(paths).requires_grad_()
    if max_gain_db is not None and profile.ceiling_weight > 0:  # the ceiling must bind, or this shows nothing
        assert objective.overshoot(torch.fft.rfft(taps, n=paths.n_fft)).max().item() > 0.1
    (gradient,) = torch.autograd.grad(value(objective, paths, taps).sum(), taps)
    _, descent = linearised(objective, paths, taps.detach())
    assert relative_error(descent, -gradient) < 1e-10  # two ways through the same float64 transforms


def test_an_exact_update_is_the_twins(small_case: Case, profile: RefinementProfile) -> None:
    paths, psd = small_case.paths(), small_case.psd()
    taps = base_taps(paths)
    found = refine(paths, taps, psd, n_updates=1, profile=replace(profile, **EXACT), max_gain_db=-6.0)
    for item, problem in enumerate(problems(on_grid(small_case, profile), profile, -6.0)):
        step = oracle.full_step(problem, taps[item].numpy())
        if profile.step_cap is not None:
            base_rms = oracle.response_rms(problem, regularised_ratio(paths.primary, paths.secondary)[item].numpy())
            step = oracle.capped(problem, step, base_rms)
            assert profile.n_fft >= paths.n_fft  # or the base were on another grid than the problem
        expected, scale = oracle.backtrack(problem, taps[item].numpy(), step)
        assert scale > 0
        assert found.step_scale[item, 0].item() == scale
        # Condition up to 1e5 (the damping is 0.002 of the mean diagonal) on weights equal to 1e-9.
        assert relative_error(found.taps[item], expected) < 1e-5
        assert found.objective[item, 1].item() == pytest.approx(oracle.objective(problem, expected), abs=1e-5)


@pytest.fixture(scope="module")
def exhausted(small_case: Case) -> Refinement:
    """Exact, uncapped updates until nothing is left to gain, or 40 of them."""
    paths = small_case.paths()
    exact = replace(PAPER, **EXACT, step_cap=None)
    return refine(paths, base_taps(paths), small_case.psd(), n_updates=40, profile=exact)


def test_converged_if_no_scale_gains_enough(small_case: Case, exhausted: Refinement) -> None:
    converged = [item for item in range(3) if exhausted.record(item)["stopped"] == "converged"]
    assert converged, [exhausted.record(item)["stopped"] for item in range(3)]
    for item in converged:
        record = exhausted.record(item)
        applied = int(exhausted.n_applied[item])
        assert 1 <= applied < 40
        lengths = [len(record[name]) for name in ("objective", "step_scale", "pcg_residual")]  # type: ignore[arg-type]
        assert lengths == [applied + 1, applied, applied]
        problem = list(problems(small_case, PAPER))[item]
        taps = exhausted.taps[item].numpy()
        _, scale = oracle.backtrack(problem, taps, oracle.full_step(problem, taps))
        assert scale == 0


def test_nothing_to_cancel_ends_without_decrease(small_case: Case) -> None:
    paths = small_case.paths()
    silence = torch.zeros_like(small_case.psd())
    found = refine(paths, 0.1 * base_taps(paths), silence, n_updates=2)
    for item in range(3):
        record = found.record(item)
        assert (record["stopped"], record["applied"]) == ("no_decrease", 0)
    assert torch.equal(found.taps, 0.1 * base_taps(paths))


@pytest.mark.parametrize("profile", [PAPER, FAST], ids=lambda item: item.name)
def test_a_rejected_step_that_overflowed_leaves_nothing_behind(
    small_case: Case, profile: RefinementProfile, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its spectrum is infinite, and infinity times zero is no number."""

    def overflowing(*system: torch.Tensor, **options: object) -> Solution:
        solution = solve_toeplitz(*system, **options)
        return replace(solution, value=torch.full_like(solution.value, 3e38))

    paths, psd = small_case.paths(torch.float32), small_case.psd(torch.float32)
    start = torch.full((paths.batch_size, SMALL_N_TAPS), 0.01)
    monkeypatch.setattr(update, "solve_toeplitz", overflowing)
    state = GaussNewtonState(paths, start, psd, profile=profile, most_updates=2)
    response, residual = state._response.clone(), state._residual.clone()
    state.update()
    state.update()
    found = state.result()
    assert torch.equal(found.taps, start)
    assert torch.equal(state._response, response)
    assert torch.equal(state._residual, residual)
    assert {STOP_REASONS[item] for item in found.stopped} == {"no_decrease"}


def test_updates_keep_their_buffers(small_case: Case) -> None:
    """Recorded CUDA graphs read the state in place."""
    paths = small_case.paths()
    state = GaussNewtonState(paths, base_taps(paths), small_case.psd(), profile=FAST, most_updates=2)
    before = vars(state).copy()
    state.update()
    moved = [name for name, item in before.items() if torch.is_tensor(item) and vars(state)[name] is not item]
    assert not moved
