"""WMMSE: weights, normal equations and their solution against dense least squares."""

import numpy as np

from prime_anc.method.start.wiener import design_shared_wmmse, design_wmmse
from tests.method.cases import SMALL_N_TAPS, Case, relative_error
from tests.oracles import toeplitz as toeplitz_oracle
from tests.oracles import wiener as oracle


def test_design_is_dense_least_squares_solution(small_case: Case) -> None:
    found = design_wmmse(small_case.paths(), small_case.psd(), SMALL_N_TAPS)
    for item, (p, s) in enumerate(zip(small_case.primary, small_case.secondary, strict=True)):
        expected = oracle.design_dense(p, s, small_case.reference_psd, SMALL_N_TAPS)
        # lstsq never squares the condition number, the normal equations (at most 1e4 damped) do.
        assert relative_error(found[item], expected) < 1e-8


def test_shared_design_equals_dense_least_squares(small_case: Case) -> None:
    found = design_shared_wmmse(small_case.paths(), small_case.psd(), SMALL_N_TAPS)
    omega = oracle.weights(small_case.reference_psd)
    rows = toeplitz_oracle.fourier_rows(small_case.n_bins, SMALL_N_TAPS)
    matrix = np.concatenate([(np.sqrt(omega) * s)[:, None] * rows for s in small_case.secondary])
    target = np.concatenate([np.sqrt(omega) * p for p in small_case.primary])
    ridge = 1e-4 * np.sum(omega * np.abs(small_case.secondary) ** 2)
    stacked = np.vstack([matrix.real, matrix.imag, np.sqrt(ridge) * np.eye(SMALL_N_TAPS)])
    wanted = np.concatenate([target.real, target.imag, np.zeros(SMALL_N_TAPS)])
    expected = np.linalg.lstsq(stacked, wanted, rcond=None)[0]
    # As for one ear: the normal equations square a condition number of at most 1e4.
    assert relative_error(found[0], expected) < 1e-8
