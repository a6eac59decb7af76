"""The generator's matrix products against torch's convolutions."""

import numpy as np
import pytest
import torch

from synthesis.cpu.generator import CpuGenerator, silu
from synthesis.generator import Generator, GeneratorConfig

LAYOUTS = {
    "as served": GeneratorConfig.prime_log(),
    "wider": GeneratorConfig.prime_log(n_channels=40, n_points=128),
    "with the head's norm": GeneratorConfig.prime_log(head_norm=True),
    "one output": GeneratorConfig.prime_log(realisation="minimum_phase"),
    "other kernels": GeneratorConfig.prime_log(kernel_size=3, dilations=(1, 3), n_groups=4, n_points=50),
    "a reach beyond the grid": GeneratorConfig.prime_log(dilations=(64,)),
}


def trained(config: GeneratorConfig) -> Generator:
    generator = Generator(config)
    with torch.no_grad():
        for parameter in generator.parameters():
            parameter += 0.1 * torch.randn_like(parameter)
    return generator.eval()


@pytest.mark.parametrize("config", LAYOUTS.values(), ids=LAYOUTS)
def test_corrections_are_the_references(config: GeneratorConfig) -> None:
    generator = trained(config)
    own = CpuGenerator(generator)
    features = torch.randn(3, 12, config.n_points)
    found = np.stack([own(each) for each in features.numpy()])
    assert found.dtype == np.float32
    with torch.inference_mode():
        expected = generator.double()(features.double()).numpy()
    # Of nepers up to the bound, 4.6, through eleven normalised layers. Measured: 7e-6, as for torch's own float32.
    np.testing.assert_allclose(found, expected, rtol=0, atol=2e-5)


def test_features_are_not_written_to_and_results_not_shared() -> None:
    own = CpuGenerator(trained(LAYOUTS["as served"]))
    features = np.random.default_rng(0).standard_normal((2, 12, 64)).astype(np.float32)
    kept = features.copy()
    first = own(features[0])
    copy = first.copy()
    own(features[1])
    assert np.array_equal(features, kept)
    assert np.array_equal(first, copy)
    assert np.array_equal(own(features[0]), first)


def test_weights_are_copied() -> None:
    generator = trained(LAYOUTS["as served"])
    own = CpuGenerator(generator)
    features = np.random.default_rng(0).standard_normal((12, 64)).astype(np.float32)
    before = own(features)
    with torch.no_grad():
        for parameter in generator.parameters():
            parameter.fill_(torch.nan)
    assert np.array_equal(own(features), before)


def test_silu_takes_any_finite_number() -> None:
    values = np.array([-3e38, -1000.0, -89.0, -1.0, 0.0, 1.0, 89.0, 3e38], np.float32)
    expected = torch.nn.functional.silu(torch.from_numpy(values)).numpy()
    with np.errstate(over="ignore"):
        found = silu(values.copy())
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-36)
