"""The causal Wiener filter: the minimum it claims, its causality, its ceiling, and its precision."""

import numpy as np
import pytest
import torch

from synthesis.causal_wiener import (
    DRIVE_LIMIT,
    HIGH_EDGE_HZ,
    LOW_EDGE_HZ,
    START_PENALTY,
    below_ceiling,
    causal_wiener_response,
    drive_ceiling,
    starting_weight,
)
from synthesis.frequency_grid import LogFrequencyGrid
from synthesis.path_ratio import floored_log
from synthesis.paths import AcousticPaths
from tests.oracles import causal_wiener as oracle
from tests.synthesis.cases import Case, random_case, relative_error

N_FFT = 4096


@pytest.fixture(scope="module")
def small_case() -> Case:
    """Random paths on a grid that is long against every response below."""
    return random_case(n_cases=3, n_fft=N_FFT, seed=3)


def smooth_terms(case: Case, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """A weight and a penalty that vary by 20 dB over the band, slowly."""
    rng = np.random.default_rng(seed)
    n_bins = N_FFT // 2 + 1
    position = np.linspace(0, np.pi, n_bins)
    waves = np.cos(np.outer(np.arange(1, 5), position))
    weight = np.exp(rng.normal(size=(len(case.primary), 4)) @ waves)
    penalty = 0.05 * np.exp(0.5 * rng.normal(size=(len(case.primary), 4)) @ waves)
    return weight, penalty


def first_taps(paths: AcousticPaths, log_weight: torch.Tensor, log_penalty: torch.Tensor, n: int) -> torch.Tensor:
    return torch.fft.irfft(causal_wiener_response(paths, log_weight, log_penalty))[..., :n]


def design(case: Case, weight: np.ndarray, penalty: np.ndarray, n_taps: int = 1024) -> np.ndarray:
    log_terms = (torch.from_numpy(np.log(each)) for each in (weight, penalty))
    return first_taps(case.paths(), *log_terms, n_taps).numpy()


def test_it_is_the_least_squares_solution_over_causal_filters(small_case: Case) -> None:
    weight, penalty = smooth_terms(small_case)
    found = design(small_case, weight, penalty)
    for row in range(len(found)):
        terms = (small_case.primary[row], small_case.secondary[row], weight[row], penalty[row])
        # The finite problem of 1024 taps is the infinite one up to what lies beyond, here below 1e-6.
        assert relative_error(found[row], oracle.long_filter(*terms, 1024)) < 1e-6
        assert relative_error(found[row], oracle.fir(*terms, 1024)) < 1e-10


def test_a_minimum_phase_secondary_is_inverted(small_case: Case) -> None:
    """With P = S R, R causal, and next to no penalty the filter is R, whatever the weight."""
    secondary = np.fft.rfft([1.0, -0.5, 0.2], n=N_FFT)
    wanted = np.array([0.3, -0.2, 0.1, 0.05])
    primary = secondary * np.fft.rfft(wanted, n=N_FFT)
    paths = AcousticPaths(*(torch.from_numpy(each)[None] for each in (primary, secondary)))
    weight, _ = smooth_terms(small_case)
    found = first_taps(
        paths, torch.from_numpy(np.log(weight[:1])), torch.full((1, N_FFT // 2 + 1), -40.0, dtype=torch.float64), 16
    )
    np.testing.assert_allclose(found[0, :4], wanted, atol=1e-9)
    np.testing.assert_allclose(found[0, 4:], 0, atol=1e-9)


def test_a_disturbance_that_comes_too_early_is_left_alone() -> None:
    """P without delay, S with one of 8 samples, white weight: nothing causal predicts, so nothing is played."""
    secondary = np.fft.rfft(np.eye(1, 9, 8)[0], n=N_FFT)
    paths = AcousticPaths(*(torch.from_numpy(e)[None] for e in (np.ones_like(secondary), secondary)))
    flat = torch.zeros(1, N_FFT // 2 + 1, dtype=torch.float64)
    assert first_taps(paths, flat, flat - 10, 64).abs().max() < 1e-12


def test_more_penalty_means_a_smaller_filter(small_case: Case) -> None:
    weight, penalty = smooth_terms(small_case)
    energies = [np.square(design(small_case, weight, factor * penalty)).sum(-1) for factor in (0.1, 1.0, 10.0)]
    assert (energies[0] > energies[1]).all()
    assert (energies[1] > energies[2]).all()


def test_only_the_ratio_of_weight_and_penalty_counts(small_case: Case) -> None:
    weight, penalty = smooth_terms(small_case)
    assert (
        relative_error(design(small_case, 1e3 * weight, 1e3 * penalty), design(small_case, weight, penalty)) < 1e-10
    )


def pooled(case: Case) -> tuple[torch.Tensor, torch.Tensor]:
    grid = LogFrequencyGrid(32_768, 128, 20.0, 24_000.0).double()
    paths = case.paths()
    magnitudes = (floored_log(each.abs()) for each in (paths.primary, paths.secondary))
    return grid.pool(torch.stack(tuple(magnitudes), dim=1)), grid.points_hz


def test_the_starting_weight_is_blind_to_levels(measured_case: Case) -> None:
    """Louder paths in other units: the penalty, which is relative, and v |S|^2 stay as they are."""
    log_paths, points_hz = pooled(measured_case)
    weight, penalty = starting_weight(log_paths, points_hz).unbind(1)
    shift = torch.tensor([1.3, -0.7], dtype=torch.float64)[:, None]
    other_weight, other_penalty = starting_weight(log_paths + shift, points_hz).unbind(1)
    torch.testing.assert_close(other_weight + 2 * (log_paths + shift)[:, 1], weight + 2 * log_paths[:, 1])
    assert torch.equal(penalty, other_penalty)
    assert torch.allclose(penalty, torch.full_like(penalty, np.log(START_PENALTY)))
    between = (points_hz > LOW_EDGE_HZ) & (points_hz < HIGH_EDGE_HZ)
    level = (weight + 2 * log_paths[:, 1])[:, between].mean(-1)
    torch.testing.assert_close(level, torch.zeros_like(level), atol=1e-12, rtol=0)


def test_the_ceiling_holds_and_what_is_below_it_stays(measured_case: Case) -> None:
    paths = measured_case.paths()
    grid = LogFrequencyGrid(32_768, 128, 20.0, 24_000.0).double()
    log_paths, points_hz = pooled(measured_case)
    response = causal_wiener_response(paths, *grid.spread(starting_weight(log_paths, points_hz)).unbind(1))
    loudest = response.abs().amax(-1, keepdim=True).log()
    # 5 neper (43 dB) off, the soft minimum takes exp(-50) / 10.
    torch.testing.assert_close(below_ceiling(response, loudest + 5), response, rtol=1e-12, atol=0)
    for lower in (0.5, 2.0):
        bent = below_ceiling(response, loudest - lower)
        assert (bent.abs().log() <= loudest - lower + 1e-9).all()
        assert relative_error(bent, response) > 0.01
        # Still causal: before time zero lies only the wrapped end of a bent response, which is longer. Measured
        # over the 30 ears: at most 4e-4 of the energy.
        taps = torch.fft.irfft(bent)
        assert (taps[:, 16_384:].square().sum(-1) < 1e-3 * taps.square().sum(-1)).all()


def test_above_the_scored_bands_the_loudspeaker_stays_below_the_disturbance(measured_case: Case) -> None:
    grid = LogFrequencyGrid(32_768, 128, 20.0, 24_000.0).double()
    log_paths, points_hz = pooled(measured_case)
    paths = measured_case.paths()
    ceiling = grid.spread(drive_ceiling(log_paths, points_hz))
    loud = 10 * torch.exp(ceiling).to(paths.primary.dtype)  # 20 dB over it at every frequency
    bent = below_ceiling(loud, ceiling)
    frequency = torch.arange(paths.n_bins) * 48_000 / 32_768
    assert (bent.abs().log() <= ceiling + 1e-9).all()
    above = frequency > HIGH_EDGE_HZ
    played = (bent * paths.secondary).abs()[:, above].square().sum(-1)
    disturbance = paths.primary.abs()[:, above].square().sum(-1)
    # Smoothed paths set the limit, so it holds for the level and not for every bin.
    assert (played < 2 * DRIVE_LIMIT**2 * disturbance).all()
    # In the scored bands it is far above what a filter asks for: 20 dB over the ratio of the paths at 6.3 kHz.
    scored = points_hz < 6500
    ratio = log_paths[:, 0] - log_paths[:, 1]
    assert (drive_ceiling(log_paths, points_hz)[:, scored] > ratio[:, scored] + np.log(5)).all()
