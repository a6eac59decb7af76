"""The finite Wiener filter: the minimum it approaches, its ceiling, its derivatives, and its precision."""

import numpy as np
import pytest
import torch
from scipy.linalg import matmul_toeplitz

from prime_anc.method.arrays import floored_log
from prime_anc.method.start.features import GeneratorConfig
from prime_anc.method.start.fir_wiener import HIGH_EDGE_HZ, LOW_EDGE_HZ, START_PENALTY, fir_wiener, starting_weight
from prime_anc.method.start.generator import LogFrequencyGrid
from tests.method.cases import Case, both
from tests.oracles import fir_wiener as oracle

CONFIG = GeneratorConfig.prime_log()
N_FFT = CONFIG.n_fft


@pytest.fixture(scope="module")
def coarse_case(measured_case: Case) -> Case:
    """Every measured ear on the generator's grid."""
    stride = 32_768 // N_FFT
    return Case(
        measured_case.primary[:, ::stride], measured_case.secondary[:, ::stride], measured_case.reference_psd
    )


def pooled(case: Case) -> tuple[torch.Tensor, LogFrequencyGrid]:
    """Log |P| and log |S| as a generator on the case's grid reads them, and its frequencies."""
    grid = LogFrequencyGrid(2 * (case.n_bins - 1), CONFIG.n_points, CONFIG.low_hz, CONFIG.high_hz).double()
    paths = case.paths()
    magnitudes = (floored_log(item.abs()) for item in (paths.primary, paths.secondary))
    return grid.pool(torch.stack(tuple(magnitudes), dim=1)), grid


def starting_terms(case: Case) -> tuple[torch.Tensor, torch.Tensor]:
    """Log weight and log penalty of an untrained generator: [n_cases, n_bins] each."""
    log_paths, grid = pooled(case)
    log_weight, log_penalty = grid.spread(starting_weight(log_paths, grid.points_hz)).unbind(1)
    return log_weight, log_penalty


def test_on_measured_ears_four_iterations_come_near_minimum(coarse_case: Case, dtype: torch.dtype) -> None:
    log_weight, log_penalty = starting_terms(coarse_case)
    found = fir_wiener(*both(coarse_case.paths(dtype)), log_weight.to(dtype), log_penalty.to(dtype))
    assert found.value.dtype == dtype
    assert found.value.shape == (6, 2048)
    # Measured: 0.036 in the median, 0.043 on the worst ear.
    assert found.residual.max().item() < 0.06
    terms = log_weight.exp().numpy(), log_penalty.exp().numpy()
    for taps, p, s, v, pen in zip(found.value, coarse_case.primary, coarse_case.secondary, *terms, strict=True):
        best = oracle.fir(p, s, v, pen)
        column, rhs = oracle.system(p, s, v, pen, 2048)
        error = taps.double().numpy() - best
        # What the quadratic form loses, over all that it can gain. Measured: at most 1e-3, 0.004 dB.
        assert error @ matmul_toeplitz(column, error) < 2e-3 * (rhs @ best)


def test_starting_weight_is_blind_to_levels(coarse_case: Case) -> None:
    """Louder paths in other units: the penalty, which is relative, and v |S|^2 stay as they are."""
    log_paths, grid = pooled(coarse_case)
    points_hz = grid.points_hz
    weight, penalty = starting_weight(log_paths, points_hz).unbind(1)
    shift = torch.tensor([1.3, -0.7], dtype=torch.float64)[:, None]
    other_weight, other_penalty = starting_weight(log_paths + shift, points_hz).unbind(1)
    torch.testing.assert_close(other_weight + 2 * (log_paths + shift)[:, 1], weight + 2 * log_paths[:, 1])
    assert torch.equal(penalty, other_penalty)
    assert torch.allclose(penalty, torch.full_like(penalty, np.log(START_PENALTY)))
    between = (points_hz > LOW_EDGE_HZ) & (points_hz < HIGH_EDGE_HZ)
    level = (weight + 2 * log_paths[:, 1])[:, between].mean(-1)
    torch.testing.assert_close(level, torch.zeros_like(level), atol=1e-12, rtol=0)
