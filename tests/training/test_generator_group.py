"""A group of generators computes what each would alone; its convolution is torch's, with exact derivatives."""

from copy import deepcopy

import pytest
import torch
from torch import nn

from synthesis.generator_config import GeneratorConfig
from synthesis.start.generator import Generator
from training.trainer import GeneratorGroup, UnfoldedConv1d, UnfoldedProduct


def fresh_generators(n_models, config):
    """Untrained, but with a last layer that lets the others through."""
    generators = [Generator(config) for _ in range(n_models)]
    for generator in generators:
        nn.init.normal_(generator.head[-1].weight)
    return generators


@pytest.mark.parametrize("dilation", [1, 4])
def test_unfolded_convolution_is_convolution(dilation):
    """Float64 against torch, at a length shorter than the dilated kernel's reach too."""
    convolution = nn.Conv1d(6, 5, 9, padding=4 * dilation, dilation=dilation).double()
    for n in (7, 40):
        hidden = torch.randn(3, 6, n, dtype=torch.float64)
        torch.testing.assert_close(UnfoldedConv1d(convolution)(hidden), convolution(hidden))


@pytest.mark.parametrize("n_models", [None, 3])
def test_unfolded_product_differentiates(n_models):
    """By input and weight against central differences, for one model and for three under vmap."""
    lead = () if n_models is None else (n_models,)
    x = torch.randn(*lead, 2, 7, 3, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(*lead, 4, 3, 5, dtype=torch.float64, requires_grad=True)

    def product(x, weight):
        return UnfoldedProduct.apply(x, weight, 2)

    assert torch.autograd.gradcheck(product if n_models is None else torch.vmap(product), (x, weight))


@pytest.mark.parametrize("config", [GeneratorConfig.prime_log(n_points=32), GeneratorConfig.prime(4096)])
def test_group_computes_what_generators_would_alone(config):
    """Outputs and gradients in float64, where another order of the sums is all that may differ."""
    alone = [fresh_generator.double() for fresh_generator in fresh_generators(3, config)]
    group = GeneratorGroup(deepcopy(alone))
    features = torch.randn(3, 2, 12, alone[0].grid.n_points, dtype=torch.float64)
    found = group(features)
    expected = torch.stack([item(gradients) for item, gradients in zip(alone, features, strict=True)])
    torch.testing.assert_close(found, expected)
    found.sin().sum().backward()
    expected.sin().sum().backward()
    for name, stacked in group.stacked.items():
        gradients = torch.stack([item.get_parameter(name).grad for item in alone])
        torch.testing.assert_close(
            stacked.grad, gradients, rtol=1e-6, atol=1e-9 * gradients.abs().max().item() + 1e-12
        )
