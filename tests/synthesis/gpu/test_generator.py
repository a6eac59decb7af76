"""Corrections by the kernel against the generator's own in double precision, and as machine code for a GPU."""

from collections import Counter
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from synthesis.generator import Generator, GeneratorConfig
from synthesis.gpu.served import LAUNCHES_TO_CORRECT
from synthesis.synthesizer import read_paths
from tests.synthesis.cases import Case

pytest.importorskip("triton", reason="Triton is not installed (pip install .[gpu])")
from synthesis.gpu import generator as kernels
from tests.synthesis.gpu.every import every
from tests.synthesis.gpu.hopper import compiled
from tests.synthesis.gpu.launches import Launches

OTHER_LAYOUTS: list[dict[str, Any]] = [
    {"n_points": 100, "n_channels": 40, "realisation": "minimum_phase"},  # half-empty rows, five channels a group
    {"n_points": 128, "n_channels": 12, "n_groups": 6, "dilations": (1, 200)},  # two groups that are none
    {"n_points": 8, "n_channels": 4, "n_groups": 1, "kernel_size": 1, "dilations": (3,), "bound_db": 12.0},
]


def trained(**layout: Any) -> Generator:
    """Every weight off its start, corrections up to the bound."""
    torch.manual_seed(3)
    generator = Generator(GeneratorConfig.prime_log(**layout)).eval()
    with torch.no_grad():
        for parameter in generator.parameters():
            parameter += 0.02 * torch.randn_like(parameter)
        generator.head[-1].weight.normal_(std=0.3)
    return generator


@torch.inference_mode()
def corrected(generator: Generator, features: Tensor, device: torch.device) -> Tensor:
    """By the kernel, back on the host."""
    own = kernels.for_kernels(generator).to(device)
    assert isinstance(own, kernels.FusedGenerator)
    found = own(features.to(device, torch.float32))
    assert found.dtype == torch.float32
    return found.cpu()


@torch.inference_mode()
def exact(generator: Generator, features: Tensor) -> Tensor:
    return deepcopy(generator).double()(features.double())


@torch.inference_mode()
def test_on_measured_ears_corrections_are_the_references(measured_case: Case, device: torch.device) -> None:
    generator, paths = trained(), measured_case.paths()[every(6, device)]
    features = read_paths(generator, paths.to(torch.float32)).features
    found, expected = corrected(generator, features, device), exact(generator, features)
    assert expected.abs().max() > 1
    # Nepers: eleven layers of sums of 216 products. Measured: 5e-6, as torch's own single precision.
    torch.testing.assert_close(found.double(), expected, rtol=0, atol=3e-5)


@pytest.mark.parametrize("layout", OTHER_LAYOUTS, ids=lambda each: str(each["n_points"]))
def test_in_another_layout_corrections_are_the_references(layout: dict[str, Any], device: torch.device) -> None:
    generator = trained(**layout)
    features = torch.randn(1, 12, generator.grid.n_points)
    expected = exact(generator, features)
    torch.testing.assert_close(corrected(generator, features, device).double(), expected, rtol=0, atol=3e-5)


def test_an_ear_alone_is_the_ear_beside_one_that_is_no_number(device: torch.device) -> None:
    generator, features = trained(), torch.randn(2, 12, 64)
    features[0, 5, 9] = torch.nan
    found = corrected(generator, features, device)
    assert found[0].isnan().all()
    assert torch.equal(found[1:], corrected(generator, features[1:], device))


def test_corrections_stay_within_the_bound(device: torch.device) -> None:
    generator = trained()
    with torch.no_grad():
        generator.head[-1].bias.copy_(torch.tensor([40.0, -40.0]))
    found = corrected(generator, torch.randn(1, 12, 64), device)
    bound = 40.0 * 0.11512925
    torch.testing.assert_close(found[0, :, 3], torch.tensor([bound, -bound]))


def test_what_the_kernel_does_not_hold_the_generator_corrects() -> None:
    for layout in (
        GeneratorConfig.prime(n_fft=4096),
        GeneratorConfig.prime_log(n_points=129),
        GeneratorConfig.prime_log(n_channels=72),
        GeneratorConfig.prime_log(head_norm=True),
    ):
        generator = Generator(layout)
        assert kernels.for_kernels(generator) is generator
    generator, features = trained().double(), torch.randn(1, 12, 64, dtype=torch.float64)
    fused = kernels.for_kernels(generator.float()).double()
    assert torch.equal(fused(features), generator.double()(features))


def test_it_is_still_the_generator() -> None:
    generator = trained()
    fused = kernels.for_kernels(generator)
    assert fused.config == generator.config
    assert fused.n_parameters == generator.n_parameters
    own, given = fused.state_dict(), generator.state_dict()
    assert own.keys() == given.keys()
    assert all(torch.equal(own[name], given[name]) for name in given)


def test_no_launch_is_uncounted_and_none_reads_a_value(monkeypatch: pytest.MonkeyPatch) -> None:
    launches: Counter[str] = Counter()
    monkeypatch.setattr(kernels, "_correct", Launches("_correct", launches))
    fused, features = kernels.for_kernels(trained()), torch.randn(2, 12, 64)
    with torch.inference_mode():
        fused(features)
        assert launches.total() == LAUNCHES_TO_CORRECT
        with FakeTensorMode(allow_non_fake_inputs=True):
            assert isinstance(fused(features), FakeTensor)


def test_it_compiles_for_hopper_and_nothing_spills(tmp_path: Path) -> None:
    sizes = kernels.sizes(GeneratorConfig.prime_log())
    found = compiled(
        "synthesis.gpu.generator", sizes, {"dilations": "*i32", "eps": "fp32", "bound": "fp32"}, tmp_path
    )
    assert set(found) == set(kernels.N_WARPS)
    assert sizes["POINTS"] // 16 == kernels.N_WARPS["_correct"]
    assert found["_correct"]["stack"] == 0
