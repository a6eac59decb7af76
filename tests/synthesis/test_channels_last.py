"""The form for inference: the same corrections, another order in memory, half precision where it serves."""

from copy import deepcopy

import pytest
import torch
from torch import nn

from benchmarks.trace import Counting
from synthesis import channels_last
from synthesis.channels_last import GPU_PRECISION, for_inference, round_trunk
from synthesis.generator import Generator, GeneratorConfig
from synthesis.noise_reduction import predict
from synthesis.synthesizer import Synthesizer
from tests.synthesis.cases import Case

SMALL_PRIME = GeneratorConfig.prime(n_fft=4096)


def trained(config: GeneratorConfig, dtype: torch.dtype) -> Generator:
    """Every weight off its start, corrections of some decibels."""
    torch.manual_seed(3)
    generator = Generator(config).to(dtype)
    with torch.no_grad():
        for parameter in generator.parameters():
            parameter += 0.02 * torch.randn_like(parameter)
        generator.head[-1].weight.normal_(std=0.05)
    return generator.eval()


@pytest.mark.parametrize(
    ("config", "dtype", "tolerance"),
    [
        (SMALL_PRIME, torch.float64, 1e-12),
        (SMALL_PRIME, torch.float32, 1e-5),
        (GeneratorConfig.prime(), torch.float32, 1e-5),
    ],
)
@pytest.mark.parametrize("batch_size", [1, 3])
@torch.inference_mode()
def test_corrections_are_the_generators(
    config: GeneratorConfig, batch_size: int, dtype: torch.dtype, tolerance: float
) -> None:
    """Ten layers of sums of 360 products, taken in another order."""
    generator = trained(config, dtype)
    features = torch.randn(batch_size, 12, generator.grid.n_points, dtype=dtype)
    expected, found = generator(features), for_inference(generator)(features)
    assert expected.abs().max() > 0.1
    torch.testing.assert_close(found, expected, rtol=0, atol=tolerance)


@pytest.mark.parametrize("served_on", ["cpu", "cuda"])
@torch.inference_mode()
def test_channels_lie_side_by_side_between_all_layers(served_on: str) -> None:
    """On a GPU a test cannot see it from outside: there a norm of PyTorch's own would copy twice."""
    seen: list[tuple[int, ...]] = []
    served = for_inference(trained(SMALL_PRIME, torch.float32), served_on)
    for layer in served.blocks.modules():
        assert not isinstance(layer, nn.GroupNorm)
        if not list(layer.children()):
            layer.register_forward_hook(lambda _, given, made: seen.extend((given[0].stride(), made.stride())))
    with Counting() as counting:
        served(torch.randn(2, 12, 2049))
    assert ("native_group_norm" in counting.counts) == (served_on == "cpu")
    # One: features come with their points side by side. Or as they are rounded.
    assert counting.counts["clone"] <= 1
    assert len(seen) == 2 * len(SMALL_PRIME.dilations) * 4
    assert {(stride[1], stride[2]) for stride in seen} == {(1, SMALL_PRIME.n_channels)}


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 1e-5), (torch.float16, 1e-2)]
)
@torch.inference_mode()
def test_the_norm_as_a_gpu_computes_it_is_pytorchs(dtype: torch.dtype, tolerance: float) -> None:
    own = nn.GroupNorm(8, 40)
    nn.init.normal_(own.weight)
    nn.init.normal_(own.bias)
    hidden, carried = ((3 * torch.randn(2, 2049, 40).transpose(1, 2) + 1).to(dtype) for _ in range(2))
    normed = deepcopy(own).double()(hidden.double())
    written_out = channels_last.WrittenOutNorm(own.to(dtype))
    for beside, before in (((), normed), ((carried,), normed + carried)):
        expected, found = nn.functional.silu(before), written_out(hidden, *beside)
        assert (found.dtype, found.stride()) == (dtype, hidden.stride())
        torch.testing.assert_close(found.double(), expected, rtol=0, atol=tolerance * float(expected.abs().max()))


def test_the_generator_itself_is_not_changed() -> None:
    generator = trained(SMALL_PRIME, torch.float32)
    before, layers = deepcopy(generator.state_dict()), [type(each) for each in generator.modules()]
    served = for_inference(generator)
    round_trunk(served, torch.float16)
    with torch.no_grad():
        for parameter in served.parameters():
            parameter.zero_()
    assert [type(each) for each in generator.modules()] == layers
    assert all(torch.equal(each, before[name]) for name, each in generator.state_dict().items())


def test_a_generator_on_few_points_keeps_its_layers() -> None:
    generator = trained(GeneratorConfig.prime_log(), torch.float32)
    assert [type(each) for each in for_inference(generator).modules()] == [
        type(each) for each in generator.modules()
    ]
    assert any(isinstance(each, nn.Conv1d) for each in generator.modules())


def reduction(case: Case, generator: Generator) -> torch.Tensor:
    """NR in dB that a generator's filters are predicted to have, [n_cases]."""
    synthesizer = Synthesizer(generator, case.psd(torch.float32), torch.full((2, 31), 0.01))
    paths = case.paths(torch.float32)
    taps = synthesizer.design(paths).taps
    return predict(
        case.paths(), taps.double(), case.psd(), uncertainty=torch.zeros(31, dtype=torch.float64)
    ).mean_noise_reduction_db


@torch.inference_mode()
def test_half_precision_costs_no_noise_reduction(measured_case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every measured ear, in the form for a GPU, less than 0.02 dB each; three bits fewer are seen to cost more."""
    generator = trained(SMALL_PRIME, torch.float32)
    exact = reduction(measured_case, generator)

    def change(precision: torch.dtype) -> float:
        monkeypatch.setattr(channels_last, "GPU_PRECISION", precision)
        rounded = for_inference(generator, "cuda")
        assert {each.dtype for each in rounded.blocks.parameters()} == {precision}
        return float((reduction(measured_case, rounded) - exact).abs().max())

    assert change(GPU_PRECISION) < 0.02
    assert change(GPU_PRECISION) < change(torch.bfloat16)


@pytest.mark.cuda
@torch.inference_mode()
def test_on_a_gpu_the_trunk_is_rounded_and_the_head_is_not(device: torch.device) -> None:
    if device.type == "cpu":
        pytest.skip("no CUDA device")
    generator = trained(SMALL_PRIME, torch.float32).to(device)
    served = for_inference(generator)
    assert {each.dtype for each in served.blocks.parameters()} == {GPU_PRECISION}
    assert {each.dtype for each in served.head.parameters()} == {torch.float32}
    features = torch.randn(2, 12, 2049, device=device)
    assert float((served(features) - generator(features)).abs().max()) < 0.02
