"""Iterative FIR: its gradient against automatic differentiation, its descent, and a case with a known answer."""

import numpy as np
import pytest
import torch

from synthesis.noise_reduction import predict
from synthesis.paths import AcousticPaths
from tests.synthesis.cases import decaying_noise, pink_psd
from training.baselines import IterativeFir, RatioBase
from training.baselines.iterative_fir import PAPER_OBJECTIVE, TapLoss
from training.objective import FrequencyDomainObjective, TruePaths

PSD = torch.from_numpy(pink_psd(16_385))


def responses(n_ears=3, seed=0):
    rng = np.random.default_rng(seed)
    primary = decaying_noise(rng, n_ears, delay=8, length=200, decay=25.0)
    secondary = 0.7 * decaying_noise(rng, n_ears, delay=3, length=80, decay=8.0)
    return TruePaths(torch.from_numpy(primary), torch.from_numpy(secondary))


def spectra(true):
    return AcousticPaths.from_impulse_responses(true.primary, true.secondary)


@pytest.mark.parametrize("margin_db", [0.0, 4.0])
def test_the_loss_and_its_gradient_equal_automatic_differentiation(margin_db):
    config = PAPER_OBJECTIVE.model_copy(update={"risk_margin_db": margin_db})
    true = responses()
    # Loud enough that bands are amplified and the gain penalty bites: every term has a gradient.
    taps = (20 * torch.randn(3, 2048, dtype=torch.float64) * torch.exp(-torch.arange(2048) / 30)).requires_grad_()
    no_correction = torch.zeros(3, 1, dtype=torch.float64)
    drawn = torch.empty(3, 0, dtype=torch.int64)
    expected = FrequencyDomainObjective(config, PSD).of_items(true, taps, no_correction, drawn, n_fft=32_768)
    (slope,) = torch.autograd.grad(expected.sum(), taps)
    loss, gradient = TapLoss(config, spectra(true), PSD)(taps.detach())
    torch.testing.assert_close(loss, expected.detach(), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(gradient, slope, rtol=1e-8, atol=1e-10 * float(slope.abs().max()))
    for name in ("risk_weight", "gain_weight", "smoothness_weight"):
        without, _ = TapLoss(config.model_copy(update={name: 0.0}), spectra(true), PSD)(taps.detach())
        assert (without < loss).all(), name


def test_a_single_step_moves_each_tap_by_the_learning_rate():
    """Adam's first step is the gradient's sign times its rate."""
    paths = spectra(responses())
    start = RatioBase("full_band").design(paths).taps
    moved = IterativeFir(PSD, n_steps=1).design(paths).taps - start
    _, gradient = TapLoss(PAPER_OBJECTIVE, paths, PSD)(start)
    torch.testing.assert_close(moved, -5e-4 * gradient.sign(), rtol=1e-2, atol=1e-12)


def test_a_secondary_path_that_is_an_impulse_leaves_the_primary_as_the_filter():
    """P is a delayed FIR, far from minimum phase, so that the start is poor and the descent has to find W = P."""
    wanted = torch.tensor([[0, 0, 0, 0, 0, 0, 0.5, -0.3, 0.2, 0.1]])
    paths = spectra(TruePaths(wanted, torch.ones(1, 1)))
    certain = torch.zeros(31)
    psd = PSD.float()
    start, found = (IterativeFir(psd, n_steps=n).design(paths).taps for n in (0, 1500))
    before, after = (predict(paths, taps, psd, uncertainty=certain) for taps in (start, found))
    assert before.mean_noise_reduction_db.item() < 10
    # Adam at a constant rate hovers about the optimum: 2048 taps astray by a share of 5e-4 each leave 25 to 31 dB.
    assert after.mean_noise_reduction_db.item() > 25
    assert after.amplification_db.item() < 0.1
