"""Path-conditioned E2E-CFG learns, resumes, keeps the amplitude scale; and the loop it shares with the controls."""

import numpy as np
import pytest
import torch

from training.baselines.e2e_cfg import E2eCfgNetwork
from training.baselines.network_training import NetworkMethod
from training.baselines.wmmse import support_estimates
from training.config import load_config
from training.datasets.noise import reference_psd, simulated_noise
from training.datasets.simulated import simulate_listeners
from training.objective import FrequencyDomainObjective, TruePaths
from training.trainer import Trainer
from training.training_set import Mixture, TrainingSet

N_FFT = 4096  # 33 tokens: the layout of the full grid, an eighth of its work


@pytest.fixture(scope="module")
def noise():
    return simulated_noise(0)


@pytest.fixture(scope="module")
def psd(noise):
    return torch.from_numpy(reference_psd(noise)).float()


@pytest.fixture(scope="module")
def objective(psd):
    return FrequencyDomainObjective(load_config("prime").objective, psd)


def training_set(n_cases):
    """Ears whose estimates are their true paths, and a mixture of the first and last."""
    pairs = simulate_listeners((n_cases + 1) // 2, 0).pairs[:n_cases]
    primary, secondary = (
        torch.from_numpy(np.stack([getattr(pair, name) for pair in pairs])).float()
        for name in ("primary", "secondary")
    )
    mixtures = (Mixture(0, n_cases - 1, 0.3),)
    return TrainingSet(primary[None], secondary[None, :, :2048], TruePaths(primary, secondary), mixtures)


def trained(cases, objective, **changes):
    config = load_config("prime", **changes)
    return NetworkMethod(Trainer("e2e_cfg", lambda: E2eCfgNetwork(N_FFT), cases, objective, config, seed=0).train())


def noise_reduction_db(cases, taps, psd):
    """Mean over cases, of the reference spectrum: the objective without its other terms."""
    weights = ("risk_weight", "gain_weight", "correction_weight", "smoothness_weight")
    config = load_config("prime").objective.model_copy(update=dict.fromkeys(weights, 0.0))
    alone = FrequencyDomainObjective(config, psd)
    return -alone(cases.true, taps, taps, np.random.default_rng(0), n_fft=32_768).item()


def test_training_learns_one_path(objective, psd):
    """From silence, 0 dB, in 60 updates at the paper's learning rate."""
    cases = training_set(1)
    method = trained(cases, objective, n_updates=60, learning_rate=5e-4)
    assert noise_reduction_db(cases, method.design(support_estimates(cases)).taps, psd) > 6
