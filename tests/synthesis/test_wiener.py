"""WMMSE: weights, normal equations and their solution against dense least squares."""

import numpy as np
import torch

from synthesis.octave_bands import NR_BANDS
from synthesis.paths import AcousticPaths
from synthesis.spectra import band_matrix
from synthesis.wiener import design_shared_wmmse, design_wmmse, toeplitz_system, wmmse_weights
from tests.oracles import toeplitz as toeplitz_oracle
from tests.oracles import wiener as oracle
from tests.synthesis.cases import SMALL_N_TAPS, Case, pink_psd, relative_error


def test_weights_equal_the_twins(measured_psd: np.ndarray) -> None:
    found = wmmse_weights(torch.from_numpy(measured_psd)).numpy()
    np.testing.assert_allclose(found, oracle.weights(measured_psd), rtol=1e-12)


def test_weights_average_to_one_over_the_bands_and_vanish_elsewhere() -> None:
    psd = torch.from_numpy(pink_psd(16_385))
    weights = wmmse_weights(psd)
    active = band_matrix(NR_BANDS, 32_768).sum(-1) > 0
    assert abs(weights[active].mean().item() - 1) < 1e-13
    assert not weights[~active].any()
    # Only the spectrum's shape matters.
    torch.testing.assert_close(wmmse_weights(1e6 * psd), weights, rtol=1e-12, atol=0)
    # Each band weighs by its mean reference power: bands of a white reference weigh alike.
    white = wmmse_weights(torch.ones(16_385, dtype=torch.float64)) @ band_matrix(NR_BANDS, 32_768)
    torch.testing.assert_close(white, white.mean().expand_as(white), rtol=1e-12, atol=0)


def test_the_system_is_the_dense_normal_equations(small_case: Case) -> None:
    column, rhs = toeplitz_system(small_case.paths(), wmmse_weights(small_case.psd()), SMALL_N_TAPS)
    omega = oracle.weights(small_case.reference_psd)
    rows = toeplitz_oracle.fourier_rows(small_case.n_bins, SMALL_N_TAPS)
    for item, (p, s) in enumerate(zip(small_case.primary, small_case.secondary, strict=True)):
        jacobian = s[:, None] * rows
        dense = np.real(jacobian.conj().T @ (omega[:, None] * jacobian))
        dense += 1e-4 * np.sum(omega * np.abs(s) ** 2) * np.eye(SMALL_N_TAPS)
        # Sums of 8193 terms, dense there and by a transform here.
        np.testing.assert_allclose(toeplitz_oracle.dense(column[item].numpy()), dense, atol=1e-11 * dense[0, 0])
        expected = np.real(jacobian.conj().T @ (omega * p))
        np.testing.assert_allclose(rhs[item].numpy(), expected, atol=1e-11 * np.abs(expected).max())


def test_the_design_is_the_dense_least_squares_solution(small_case: Case) -> None:
    found = design_wmmse(small_case.paths(), small_case.psd(), SMALL_N_TAPS)
    for item, (p, s) in enumerate(zip(small_case.primary, small_case.secondary, strict=True)):
        expected = oracle.design_dense(p, s, small_case.reference_psd, SMALL_N_TAPS)
        # lstsq never squares the condition number, the normal equations (at most 1e4 damped) do.
        assert relative_error(found[item], expected) < 1e-8


def test_the_design_equals_the_twin_on_measured_paths(measured_case: Case) -> None:
    few = slice(0, 30, 6)
    found = design_wmmse(measured_case.paths()[few], measured_case.psd())
    assert found.shape == (5, 2048)
    for taps, p, s in zip(found, measured_case.primary[few], measured_case.secondary[few], strict=True):
        # One Levinson recursion each, on columns equal to rounding; condition about 1e4 x 2048.
        assert relative_error(taps, oracle.design(p, s, measured_case.reference_psd, 2048)) < 1e-8


def test_float32_paths_are_solved_in_float64(measured_case: Case) -> None:
    found = design_wmmse(measured_case.paths(torch.float32)[:2], measured_case.psd(torch.float32))
    assert found.dtype == torch.float32
    expected = design_wmmse(measured_case.paths()[:2], measured_case.psd())
    # float32 paths carry 6e-8 each; the system's condition (1e4, by its lambda) multiplies that.
    assert relative_error(found, expected) < 1e-3


def test_the_level_of_the_primary_scales_the_filter(small_case: Case) -> None:
    paths = small_case.paths()
    louder = AcousticPaths(2 * paths.primary, paths.secondary)
    found = design_wmmse(louder, small_case.psd(), SMALL_N_TAPS)
    torch.testing.assert_close(
        found, 2 * design_wmmse(paths, small_case.psd(), SMALL_N_TAPS), rtol=1e-10, atol=1e-12
    )


def test_the_shared_design_is_the_dense_least_squares_solution_of_all_ears(small_case: Case) -> None:
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


def test_the_shared_design_of_one_ear_or_of_equal_ears_is_its_own(small_case: Case) -> None:
    one = small_case.paths()[:1]
    own = design_wmmse(one, small_case.psd(), SMALL_N_TAPS)
    assert torch.equal(design_shared_wmmse(one, small_case.psd(), SMALL_N_TAPS), own)
    thrice = design_shared_wmmse(AcousticPaths.stack([one] * 3), small_case.psd(), SMALL_N_TAPS)
    # Three times the same equations, summed with rounding; condition as above.
    assert relative_error(thrice, own) < 1e-8
