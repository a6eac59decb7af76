"""Weighted least squares and FOMAML: the direct solution, limiting cases, and what learning is worth."""

import pytest
import torch

from prime_anc.method.paths import AcousticPaths
from prime_anc.method.start.wiener import design_wmmse, toeplitz_system, wmmse_weights
from training.baselines.fomaml import INNER_STEP, Fomaml
from training.baselines.iterative_fir import PAPER_OBJECTIVE, TapLoss
from training.baselines.wmmse import SupportSharedWmmse, WmmsePcg
from training.config import load_config

CPU = torch.device("cpu")


def quadratic(paths, psd, taps):
    """What WMMSE minimises, up to a constant: [n_ears]."""
    column, rhs = toeplitz_system(paths, wmmse_weights(psd))
    lags = (torch.arange(2048)[:, None] - torch.arange(2048)).abs()
    taps = taps.double()
    fitted = torch.stack([t @ (c[lags] @ t) for c, t in zip(column, taps, strict=True)])
    return fitted - 2 * (rhs * taps).sum(-1)


def test_each_budget_comes_closer_to_direct_solution(measurements):
    few = [0, 3]
    paths, psd = measurements.paths(few, torch.float64), measurements.reference_psd
    least = quadratic(paths, psd, design_wmmse(paths, psd))
    gaps = [
        (quadratic(paths, psd, WmmsePcg(psd, n).design(paths).taps) / least - 1).abs() for n in (32, 128, 512, 2048)
    ]
    for nearer, farther in zip(gaps[1:], gaps, strict=False):
        assert (nearer < farther).all()
    # The value is second order in the error, and float32's rounding enters only through it.
    assert gaps[-1].max() < 1e-4


def test_shared_filter_of_one_case(measurements):
    listener = (measurements.pairs[0].listener,)
    training_set = measurements.training_set(listener, load_config("prime-log", n_calibrations=1), CPU)
    alone = type(training_set)(
        training_set.primary_estimates[:, :1], training_set.secondary_estimates[:, :1], training_set.true, ()
    )
    psd = measurements.reference_psd.float()
    others = measurements.paths([1, 2, 3])
    shared = SupportSharedWmmse.fit(alone, psd).design(others).taps
    single = design_wmmse(measurements.paths([measurements.indices(listener)[0]]), psd)
    # The same estimates in float32, transformed there by their true length and here by the grid's.
    torch.testing.assert_close(shared, single.expand(3, -1), rtol=1e-3, atol=1e-4 * float(single.abs().max()))


@pytest.fixture(scope="module")
def training_set(measurements):
    support = tuple(sorted({pair.listener for pair in measurements.pairs}))[:2]
    return measurements.training_set(support, load_config("prime", n_calibrations=1), CPU)


def loss_on(true, psd):
    return TapLoss(PAPER_OBJECTIVE, AcousticPaths.from_impulse_responses(true.primary, true.secondary), psd)


def test_meta_updates_lower_adapted_loss(measurements, training_set):
    psd = measurements.reference_psd.float()
    loss = loss_on(training_set.true, psd)
    n_cases = training_set.primary_estimates.shape[1]

    def adapted_loss(taps):
        taps = taps.expand(n_cases, -1)
        return loss.value_and_gradient(taps - INNER_STEP * loss.value_and_gradient(taps)[1])[0].mean().item()

    pooled = Fomaml.fit(training_set, psd, n_pooled_updates=80, n_meta_updates=0)
    meta = Fomaml.fit(training_set, psd, n_pooled_updates=80, n_meta_updates=30)
    silence = loss.value_and_gradient(torch.zeros(n_cases, 2048))[0].mean().item()
    assert loss.value_and_gradient(pooled.taps.expand(n_cases, -1))[0].mean().item() < silence - 5
    assert adapted_loss(pooled.taps) < loss.value_and_gradient(pooled.taps.expand(n_cases, -1))[0].mean().item()
    assert adapted_loss(meta.taps) < adapted_loss(pooled.taps)
