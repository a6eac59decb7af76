"""Iterative FIR: its loss, its descent, and a case with a known answer."""

import numpy as np
import torch

from prime_anc.method.paths import AcousticPaths
from tests.method.cases import decaying_noise, pink_psd
from training.baselines import iterative_fir
from training.baselines.iterative_fir import PAPER_OBJECTIVE, IterativeFir, TapLoss, ratio_base
from training.objective import FrequencyDomainObjective, TruePaths

PSD = torch.from_numpy(pink_psd(16_385))


def responses(n_ears=3, seed=0):
    rng = np.random.default_rng(seed)
    primary = decaying_noise(rng, n_ears, delay=8, length=200, decay=25.0)
    secondary = 0.7 * decaying_noise(rng, n_ears, delay=3, length=80, decay=8.0)
    return TruePaths(torch.from_numpy(primary), torch.from_numpy(secondary))


def spectra(true):
    return AcousticPaths.from_impulse_responses(true.primary, true.secondary)


def test_tap_loss_is_objective():
    """Loud enough that bands are amplified and the gain penalty bites."""
    true = responses()
    taps = 20 * torch.randn(3, 2048, dtype=torch.float64) * torch.exp(-torch.arange(2048) / 30)
    nothing = torch.zeros(3, 1, dtype=torch.float64)
    expected = FrequencyDomainObjective(PAPER_OBJECTIVE, PSD).of_items(true, taps, nothing)
    loss, _ = TapLoss(PAPER_OBJECTIVE, spectra(true), PSD).value_and_gradient(taps)
    torch.testing.assert_close(loss, expected, rtol=1e-12, atol=1e-12)


def test_single_step_moves_each_tap_by_rate(monkeypatch):
    """Adam's first step is the gradient's sign times its rate."""
    paths = spectra(responses())
    monkeypatch.setattr(iterative_fir, "N_STEPS", 1)
    start = ratio_base(paths)
    moved = IterativeFir(PSD).design(paths).taps - start
    _, gradient = TapLoss(PAPER_OBJECTIVE, paths, PSD).value_and_gradient(start)
    torch.testing.assert_close(moved, -5e-4 * gradient.sign(), rtol=1e-2, atol=1e-12)
