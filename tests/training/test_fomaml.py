"""FOMAML: a single case, what each phase is worth, and that only the support's true paths teach it."""

import pytest
import torch

from synthesis.paths import AcousticPaths
from training.baselines.fomaml import INNER_STEP, Fomaml
from training.baselines.iterative_fir import PAPER_OBJECTIVE, TapLoss
from training.config import load_config

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def training_set(measurements):
    support = tuple(sorted({pair.listener for pair in measurements.pairs}))[:2]
    return measurements.training_set(support, load_config("prime", n_calibrations=1), CPU)


def loss_on(true, psd):
    return TapLoss(PAPER_OBJECTIVE, AcousticPaths.from_impulse_responses(true.primary, true.secondary), psd)


def test_meta_updates_lower_adapted_loss(measurements, training_set):
    psd = measurements.reference_psd.float()
    loss = loss_on(training_set.true, psd)
    n_cases = training_set.n_cases

    def adapted_loss(taps):
        taps = taps.expand(n_cases, -1)
        return loss.value_and_gradient(taps - INNER_STEP * loss.value_and_gradient(taps)[1])[0].mean().item()

    pooled = Fomaml.fit(training_set, psd, seed=0, n_pooled_updates=80, n_meta_updates=0)
    meta = Fomaml.fit(training_set, psd, seed=0, n_pooled_updates=80, n_meta_updates=30)
    silence = loss.value_and_gradient(torch.zeros(n_cases, 2048))[0].mean().item()
    assert loss.value_and_gradient(pooled.taps.expand(n_cases, -1))[0].mean().item() < silence - 5
    assert adapted_loss(pooled.taps) < loss.value_and_gradient(pooled.taps.expand(n_cases, -1))[0].mean().item()
    assert adapted_loss(meta.taps) < adapted_loss(pooled.taps)
