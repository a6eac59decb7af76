"""Taps from corrections against the reference, with every kind of ceiling."""

import numpy as np
import pytest
import torch

from synthesis.conventions import DESIGN_N_FFT
from synthesis.cpu.fir_wiener import FirWiener
from synthesis.cpu.toeplitz import ToeplitzSolver
from synthesis.cpu.transforms import RealTransform
from synthesis.frequency_grid import LogFrequencyGrid
from synthesis.generator import GeneratorConfig
from synthesis.synthesizer import Synthesizer
from tests.synthesis.cases import Case, relative_error
from tests.synthesis.cpu.conftest import Reference


def design(
    reference: Synthesizer, case: Case, log_paths: np.ndarray, correction: np.ndarray, max_gain_db: float | None
) -> torch.Tensor:
    """Taps of every ear."""
    config, grid = reference.generator.config, reference.generator.grid
    assert isinstance(grid, LogFrequencyGrid)
    transform, stride = RealTransform(config.n_fft), DESIGN_N_FFT // config.n_fft
    own = FirWiener(grid, transform, ToeplitzSolver(transform))
    paths = case.paths(torch.float32)
    rows = zip(paths.primary.numpy(), paths.secondary.numpy(), log_paths, correction, strict=True)
    return torch.from_numpy(
        np.stack(
            [
                own.design(p[::stride].copy(), s[::stride].copy(), logs, each, max_gain_db)
                for p, s, logs, each in rows
            ]
        )
    )


@pytest.mark.parametrize("n_fft", [4096, 8192, DESIGN_N_FFT])
@pytest.mark.parametrize("max_gain_db", [None, 30.0, 6.0])
def test_taps_are_the_references(
    case: Case, max_gain_db: float | None, n_fft: int, reference_for: Reference
) -> None:
    reference = reference_for(case, GeneratorConfig.prime_log(n_fft=n_fft)).double()
    ratio = reference.path_ratio(case.paths())
    correction = reference.generate(ratio.features).detach()
    expected = reference.reconstruct(case.paths(), ratio, correction, max_gain_db)
    found = design(
        reference.float(), case, ratio.log_paths.float().numpy(), correction.float().numpy(), max_gain_db
    )
    assert found.dtype == torch.float32
    # Symbols that span 40 dB and more: a condition up to 1e4 on float32's 6e-8. Measured: 6e-5 on simulated ears
    # and 1e-3 on measured ones, as for torch's own single precision (6e-5, 9e-4).
    assert relative_error(found, expected) < (2e-4 if case.primary.shape[0] == 4 else 2e-3)


@pytest.mark.parametrize("over_neper", [0.9, 1.1, 3.0])
def test_a_response_far_below_its_ceiling_is_left_as_it_is(
    over_neper: float, simulated_case: Case, reference_for: Reference
) -> None:
    """Where it is a neper or more below, the bend is left out; on both sides of that it makes no difference."""
    reference = reference_for(simulated_case)
    n_points = reference.generator.grid.n_points
    flat = np.zeros((4, 2, n_points), np.float32)  # as if |P| = |S| = 1, for a drive ceiling far above the filters
    zero = np.zeros((4, 2, n_points), np.float32)
    free = design(reference, simulated_case, flat, zero, None)
    loudest_db = 20 * torch.log10(torch.fft.rfft(free, n=8192).abs().amax(-1))
    for row in range(4):
        limit_db = float(loudest_db[row]) + 20 / np.log(10) * over_neper
        one = Case(
            simulated_case.primary[row : row + 1],
            simulated_case.secondary[row : row + 1],
            simulated_case.reference_psd,
        )
        found = design(reference, one, flat[:1], zero[:1], limit_db)
        # Bent by less than 1e-5 neper, left out or not. Measured: 5e-6.
        assert relative_error(found[0], free[row]) < 1e-5
