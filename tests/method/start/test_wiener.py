"""WMMSE against dense least squares."""

from prime_anc.method.start.wiener import design_wmmse
from tests.method.cases import SMALL_N_TAPS, Case, relative_error
from tests.oracles import wiener as oracle


def test_design_is_dense_least_squares_solution(small_case: Case) -> None:
    found = design_wmmse(small_case.paths(), small_case.psd(), SMALL_N_TAPS)
    for item, (p, s) in enumerate(zip(small_case.primary, small_case.secondary, strict=True)):
        expected = oracle.design_dense(p, s, small_case.reference_psd, SMALL_N_TAPS)
        # lstsq never squares the condition number, the normal equations (at most 1e4 damped) do.
        assert relative_error(found[item], expected) < 1e-8
