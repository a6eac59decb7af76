"""Output and conditioning controls, and end-to-end training: what they start from, what they keep, what they learn."""

import numpy as np
import pytest
import torch

from prime_anc.method.arrays import minimum_phase_fir
from prime_anc.method.start.features import CHANNELS, GeneratorConfig
from prime_anc.method.start.generator import Generator
from training.baselines.conditioning_controls import PathIndependentCorrection, ShuffledPhase
from training.baselines.e2e_cfg import E2eCfgNetwork
from training.baselines.iterative_fir import ratio_base
from training.baselines.network_training import NetworkMethod, PathInputs
from training.baselines.output_controls import OutputControlNetwork
from training.baselines.wmmse import support_estimates
from training.config import load_config
from training.datasets.noise import reference_psd, simulated_noise
from training.datasets.simulated import simulate_listeners
from training.objective import FrequencyDomainObjective, TruePaths
from training.trainer import Trainer
from training.training_set import TrainingSet

N_FFT = 4096
SMALL = GeneratorConfig.prime(N_FFT)
N_CASES = 4


@pytest.fixture(scope="module")
def psd():
    return torch.from_numpy(reference_psd(simulated_noise(0))).float()


@pytest.fixture(scope="module")
def objective(psd):
    return FrequencyDomainObjective(load_config("prime").objective, psd)


@pytest.fixture(scope="module")
def paths(cases):
    return support_estimates(cases)


def network_of(name, config=SMALL):
    torch.manual_seed(0)
    return OutputControlNetwork(config, has_skip=not name.startswith("no"), has_phase=name.endswith("phase"))


def roughened(module):
    """Weights as training might leave them: the last layer no longer zero."""
    torch.manual_seed(7)
    with torch.no_grad():
        module.head[-1].weight.normal_(0, 0.1)
    return module.eval()


# Output controls


def test_untrained_skip_is_ratio_base(paths):
    """On the full grid, where the ratio base is realised too."""
    network = network_of("skip_mp", GeneratorConfig.prime())
    assert torch.equal(network(paths).taps, ratio_base(paths))


def test_phase_output_turns_phase_and_keeps_magnitude(paths):
    """v = artanh(1/2) at every bin: a quarter turn of all but DC and Nyquist, before the cut to 2048 taps."""
    network = network_of("skip_mp_phase")
    with torch.no_grad():
        network.head[-1].bias[1] = np.arctanh(0.5)
    inputs = PathInputs.read(paths, N_FFT)
    base = torch.fft.rfft(minimum_phase_fir(inputs.log_base, N_FFT))
    turned = base.clone()
    turned[:, 1:-1] = 1j * base[:, 1:-1]
    expected = torch.fft.irfft(turned)[:, :2048]
    torch.testing.assert_close(network(paths).taps, expected, rtol=0, atol=1e-5 * expected.abs().max().item())


# Conditioning controls


@pytest.fixture(scope="module")
def generator():
    torch.manual_seed(1)
    return roughened(Generator(SMALL))


def test_shuffling_changes_phase_channels_alone(generator, paths):
    shuffled = ShuffledPhase(generator, pool=paths, seed=0).shuffled_features(paths)
    features = PathInputs.read(paths, N_FFT).features
    for place, channel in enumerate(CHANNELS):
        is_phase = channel not in ("log_ratio", "frequency", "log_primary", "log_secondary")
        for case in range(N_CASES):
            assert torch.equal(shuffled[case, place], features[case, place]) is not is_phase, channel


def test_correction_is_supports_mean_on_each_querys_base(generator, cases, paths):
    control = PathIndependentCorrection.fit(cases, generator)
    inputs = PathInputs.read(paths, N_FFT)
    assert torch.equal(control.design(paths).taps, minimum_phase_fir(inputs.log_base + control.correction))
    with torch.no_grad():
        expected = generator(inputs.features).flatten(1).mean(0)
    torch.testing.assert_close(control.correction, expected, rtol=0, atol=1e-3)


def training_set(n_cases):
    """Ears whose estimates are their true paths."""
    pairs = simulate_listeners((n_cases + 1) // 2, 0).pairs[:n_cases]
    primary, secondary = (
        torch.from_numpy(np.stack([getattr(pair, name) for pair in pairs])).float()
        for name in ("primary", "secondary")
    )
    return TrainingSet(primary[None], secondary[None, :, :2048], TruePaths(primary, secondary), ())


@pytest.fixture(scope="module")
def cases():
    return training_set(N_CASES)


def noise_reduction_db(cases, taps, psd):
    """Mean over cases, of the reference spectrum: the objective without its other terms."""
    weights = ("risk_weight", "gain_weight", "correction_weight", "smoothness_weight")
    config = load_config("prime").objective.model_copy(update=dict.fromkeys(weights, 0.0))
    alone = FrequencyDomainObjective(config, psd)
    return -alone(cases.true, taps, taps, np.random.default_rng(0)).item()


def test_training_learns_one_path(objective, psd):
    """From silence, 0 dB, in 60 updates at the paper's learning rate."""
    cases = training_set(1)
    config = load_config("prime", n_updates=60, learning_rate=5e-4).model_copy(update={"batch_size": 1})
    method = NetworkMethod(
        Trainer("e2e_cfg", lambda: E2eCfgNetwork(N_FFT), cases, objective, config, seed=0).train()
    )
    assert noise_reduction_db(cases, method.design(support_estimates(cases)).taps, psd) > 6
