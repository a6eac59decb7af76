"""Updates of one ear against the reference: the same steps, scales, verdicts and objective."""

from itertools import pairwise

import numpy as np
import pytest
import torch

from synthesis.conventions import DESIGN_N_FFT
from synthesis.cpu.refinement import EarRefining, Refiner
from synthesis.cpu.toeplitz import ToeplitzSolver
from synthesis.cpu.transforms import RealTransform
from synthesis.gauss_newton import FAST, FINE, VERDICTS, RefinementProfile, Refining, refine
from synthesis.minimum_phase import minimum_phase_fir
from synthesis.path_ratio import log_base_magnitude, regularised_ratio
from synthesis.spectra import collected
from tests.synthesis.cases import HOPELESS, Case, hopeless, relative_error


def refiner(profile: RefinementProfile = FAST) -> Refiner:
    transform = RealTransform(profile.n_fft)
    return Refiner(transform, ToeplitzSolver(transform))


def start_for(case: Case) -> torch.Tensor:
    """The held-band ratio-base FIR: a start that leaves three updates much to do."""
    return minimum_phase_fir(log_base_magnitude(regularised_ratio(case.paths()), "held_band"))


def updated(one: EarRefining, n_updates: int) -> EarRefining:
    for _ in range(n_updates):
        one.update()
    return one


def refined(
    case: Case, start: torch.Tensor, n_updates: int, max_gain_db: float | None, profile: RefinementProfile = FAST
) -> list[EarRefining]:
    """Every ear, one after the other, by one refiner."""
    own = refiner(profile)
    stride = DESIGN_N_FFT // profile.n_fft
    paths = case.paths(torch.float32)
    psd = collected(case.psd(torch.float32), stride).numpy()
    rows = zip(paths.primary.numpy(), paths.secondary.numpy(), start.float().numpy(), strict=True)
    return [
        updated(own.begin(p[::stride].copy(), s[::stride].copy(), psd, taps.copy(), max_gain_db), n_updates)
        for p, s, taps in rows
    ]


@pytest.mark.parametrize(
    ("profile", "n_updates", "max_gain_db"),
    [*((FAST, k, limit) for k in (0, 3) for limit in (None, 30.0, 12.0)), (FINE, 1, 30.0), (FINE, 3, 12.0)],
    ids=lambda each: getattr(each, "name", None),
)
def test_updates_are_the_references(
    case: Case, profile: RefinementProfile, n_updates: int, max_gain_db: float | None
) -> None:
    start = start_for(case)
    options = {"n_updates": n_updates, "profile": profile, "max_gain_db": max_gain_db}
    expected = refine(case.paths(), start, case.psd(), **options)
    for item, one in enumerate(refined(case, start, n_updates, max_gain_db, profile)):
        twin = expected.verdict(item)
        assert one.taps.dtype == np.float32
        assert (one.step_scale, VERDICTS[one.stopped]) == (twin["step_scale"], twin["stopped"])
        # The condition, 1e4, on float32's 6e-8. Measured: 3e-4, where torch's own single precision has 5e-4; 7e-4
        # in J, of order -5 and with a penalty of 30 per octave of overshoot; 2e-4 in the residual, of order 0.1,
        # and 2e-3 in one of 0.7 with the transforms of a processor without AVX-512.
        assert relative_error(one.taps, expected.taps[item]) < 2e-3
        np.testing.assert_allclose(one.objective, twin["objective"], rtol=0, atol=3e-3)
        np.testing.assert_allclose(one.pcg_residual, twin["pcg_residual"], rtol=1e-2, atol=2e-3)


def test_updates_go_on_until_nothing_is_gained_and_each_is_the_references(case: Case) -> None:
    start = start_for(case)
    expected, found = Refining(case.paths(), start, case.psd()), refined(case, start, 0, 30.0)
    for _ in range(8):
        expected.update()
        taps = expected.result().taps
        for item, one in enumerate(found):
            one.update()
            # The last gains are as small as single precision's rounding: which update ends it may differ, the
            # filter not.
            assert relative_error(one.taps, taps[item]) < 2e-3
    for item, one in enumerate(found):
        assert one.objective[-1] == pytest.approx(expected.result().verdict(item)["objective"][-1], abs=5e-3)  # type: ignore[index]
        assert len(one.objective) == len(one.step_scale) + 1 == len(one.pcg_residual) + 1
        assert all(later < earlier for earlier, later in pairwise(one.objective))


@pytest.mark.parametrize("name", HOPELESS)
def test_ill_conditioned_paths_are_refined_or_left_alone(name: str, simulated_case: Case) -> None:
    paths = hopeless(name, simulated_case)
    odd = Case(paths.primary.numpy(), paths.secondary.numpy(), simulated_case.reference_psd)
    start = start_for(odd)
    for one in refined(odd, start, 3, 30.0):
        assert np.isfinite(one.taps).all()
        assert np.isfinite(one.objective).all()
        assert np.isfinite(one.pcg_residual).all()
        assert all(later < earlier for earlier, later in pairwise(one.objective))


def test_where_there_is_nothing_to_cancel_the_filter_stays(simulated_case: Case) -> None:
    silence = Case(simulated_case.primary, simulated_case.secondary, np.zeros(simulated_case.n_bins))
    start = 0.1 * start_for(simulated_case)
    for one, taps in zip(refined(silence, start, 2, 30.0), start.float().numpy(), strict=True):
        assert np.array_equal(one.taps, taps)
        assert (one.step_scale, VERDICTS[one.stopped]) == ([], "no_decrease")


def test_what_is_passed_in_stays_and_results_are_not_shared(simulated_case: Case) -> None:
    own, stride = refiner(), DESIGN_N_FFT // FAST.n_fft
    paths = simulated_case.paths(torch.float32)
    psd = collected(simulated_case.psd(torch.float32), stride).numpy()
    start = start_for(simulated_case).float().numpy()
    arguments = [
        (
            paths.primary[row, ::stride].numpy().copy(),
            paths.secondary[row, ::stride].numpy().copy(),
            psd,
            start[row],
        )
        for row in (0, 1)
    ]
    kept = [each.copy() for each in arguments[0]]
    first = updated(own.begin(*arguments[0], 30.0), 2)
    copy = first.taps.copy()
    assert all(np.array_equal(each, before) for each, before in zip(arguments[0], kept, strict=True))
    updated(own.begin(*arguments[1], None), 1)
    assert np.array_equal(first.taps, copy)
    again = updated(own.begin(*arguments[0], 30.0), 2)
    assert np.array_equal(again.taps, copy)
    assert again.objective == first.objective
