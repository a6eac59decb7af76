"""The generator: its start, its twin, its bound, its frequencies, and its configuration on disk."""

import numpy as np
import pytest
import torch

from prime_anc.method.errors import InvalidOption
from prime_anc.method.start.features import N_OUTPUTS, GeneratorConfig
from prime_anc.method.start.generator import Generator, LogFrequencyGrid
from tests.oracles import generator as oracle

SMALL_PRIME = GeneratorConfig.prime(n_fft=4096)
PRIME_LOG = GeneratorConfig.prime_log()
MINIMUM_PHASE_LOG = GeneratorConfig.prime_log(realisation="minimum_phase")
CONFIGS = {"prime": SMALL_PRIME, "prime-log": PRIME_LOG, "prime-log, minimum phase": MINIMUM_PHASE_LOG}


def trained(config: GeneratorConfig, dtype: torch.dtype = torch.float64) -> Generator:
    """A generator whose every weight, the last layer's included, differs from its start."""
    generator = Generator(config).to(dtype)
    with torch.no_grad():
        for parameter in generator.parameters():
            parameter += 0.1 * torch.randn_like(parameter)
    return generator


def features_for(generator: Generator) -> torch.Tensor:
    return torch.randn(2, 12, generator.grid.n_points, dtype=next(generator.parameters()).dtype)


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_untrained_generator_corrects_nothing(config: GeneratorConfig, dtype: torch.dtype) -> None:
    generator = Generator(config).to(dtype)
    found = generator(features_for(generator))
    assert found.shape == (2, N_OUTPUTS[config.realisation], generator.grid.n_points)
    assert found.dtype == dtype
    assert not found.any()


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_forward_pass_is_twins(config: GeneratorConfig) -> None:
    generator = trained(config)
    features = features_for(generator)
    found = generator(features)
    parameters = [parameter.detach().numpy() for parameter in generator.parameters()]
    for case, correction in zip(features, found, strict=True):
        g = oracle.forward(case.numpy(), parameters, head_norm=config.head_norm)
        expected = oracle.bounded(g, config.bound_db)
        # Eleven layers of float64 sums of 360 terms.
        np.testing.assert_allclose(correction.detach().numpy(), expected, rtol=0, atol=1e-11)


def test_corrections_stay_within_bound(dtype: torch.dtype) -> None:
    for config in (SMALL_PRIME, PRIME_LOG):
        generator = trained(config, dtype)
        with torch.no_grad():
            generator.head[-1].weight.mul_(1000)  # far into saturation
        largest = generator(features_for(generator)).abs().max().item()
        bound = config.bound_db * np.log(10) / 20
        assert 0.99 * bound < largest <= bound * (1 + 4 * torch.finfo(dtype).eps)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"kind": "dense"}, "generator kind: .* is out of range"),
        ({"n_fft": 10_000}, "generator n_fft: .* is out of range"),
        ({"bound_db": float("nan")}, "generator bound_db: .* is out of range"),
        ({"dilations": []}, r"dilations: \(\) is no tuple"),
        ({"layers": 3}, r"\['layers'\] are unknown"),
        ({"n_fft": True}, "n_fft: True is no int"),
        ({"bound_db": None}, r"\['bound_db'\] missing"),
    ],
)
def test_impossible_configurations_are_named(changes: dict[str, object], message: str) -> None:
    values = {name: value for name, value in (PRIME_LOG.to_dict() | changes).items() if value is not None}
    with pytest.raises(InvalidOption, match=message):
        GeneratorConfig.from_dict(values)


def test_checkpoint_that_names_no_realisation_is_of_minimum_phase() -> None:
    values = MINIMUM_PHASE_LOG.to_dict()
    del values["realisation"]
    assert GeneratorConfig.from_dict(values) == MINIMUM_PHASE_LOG


POINTS = np.geomspace(20, 24_000, 128)


def log_grid() -> LogFrequencyGrid:
    return LogFrequencyGrid(32_768, 128, 20.0, 24_000.0).double()


def test_spreading_interpolates_linearly_in_log_frequency() -> None:
    values = torch.randn(3, 128, dtype=torch.float64)
    frequency = np.fft.rfftfreq(32_768, 1 / 48_000)
    log_frequency = np.log(np.maximum(frequency, 1e-3))
    for row, found in zip(values, log_grid().spread(values), strict=True):
        expected = np.interp(log_frequency, np.log(POINTS), row.numpy())  # constant beyond both ends
        # The fractions are kept in float32: 1e-7 of differences of order 5.
        np.testing.assert_allclose(found.numpy(), expected, atol=1e-6)


def test_pooling_is_mean_under_hat_around_each_point() -> None:
    channels = torch.randn(1, 2, 16_385, dtype=torch.float64)
    found = log_grid().pool(channels)
    assert found.shape == (1, 2, 128)
    frequency = np.fft.rfftfreq(32_768, 1 / 48_000)
    ratio = (24_000 / 20) ** (1 / 127)
    for index in (0, 5, 40, 100, 126, 127):
        half_width = max(POINTS[index] * (ratio - 1), frequency[1])
        hat = np.maximum(0, 1 - np.abs(frequency - POINTS[index]) / half_width)
        expected = channels[0].numpy() @ hat / hat.sum()
        # Weights are kept in float32: 1e-7 of a mean of numbers of order 1.
        np.testing.assert_allclose(found[0, :, index].numpy(), expected, atol=1e-6)
