"""`prime`'s norms with what follows them: the kernels against PyTorch in double precision, and as machine code."""

from collections import Counter
from copy import deepcopy
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from synthesis.channels_last import WrittenOutNorm, for_inference
from synthesis.generator import Generator, GeneratorConfig
from synthesis.gpu.served import LAUNCHES_OF_A_NORM, MOST_DIFFERENCE, _normed

pytest.importorskip("triton", reason="Triton is not installed (pip install .[gpu])")
from synthesis.gpu import norm as kernels
from tests.synthesis.gpu.hopper import compiled
from tests.synthesis.gpu.launches import Launches


def some_norm(n_groups: int, n_channels: int) -> nn.GroupNorm:
    torch.manual_seed(4)
    own = nn.GroupNorm(n_groups, n_channels)
    nn.init.normal_(own.weight)
    nn.init.normal_(own.bias)
    return own


def some_rows(batch: int, n_channels: int, n_points: int) -> Tensor:
    """Levels and offsets that differ by channel and by ear; a point's channels side by side."""
    torch.manual_seed(5)
    level = torch.logspace(-1, 0.5, n_channels) * torch.arange(1, batch + 1)[:, None, None]
    return (level * (torch.randn(batch, n_points, n_channels) + 1)).transpose(1, 2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize(
    ("n_groups", "n_channels", "n_points"), [(8, 40, 1025), (8, 40, 256), (3, 12, 100), (1, 1, 300), (5, 5, 513)]
)
@torch.inference_mode()
def test_it_is_pytorchs(
    n_groups: int, n_channels: int, n_points: int, dtype: torch.dtype, device: torch.device
) -> None:
    """Half-empty parts, channels that fill no power of two, groups of one: to the rounding of what is written."""
    own, hidden = some_norm(n_groups, n_channels), some_rows(2, n_channels, n_points).to(dtype)
    carried = some_rows(2, n_channels, n_points).flip(0).to(dtype)
    normed = deepcopy(own).double()(hidden.double())
    fused = kernels.FusedNorm(WrittenOutNorm(own)).to(device, dtype)
    digits = 2e-6 if dtype == torch.float32 else 2e-3
    for beside, before in (((), normed), ((carried,), normed + carried)):
        expected, beside = nn.functional.silu(before), [each.to(device) for each in beside]
        found = fused(hidden.to(device), *beside)
        assert (found.dtype, found.stride()) == (dtype, hidden.stride())
        tolerance = digits * float(expected.abs().max())
        torch.testing.assert_close(found.double().cpu(), expected, rtol=0, atol=tolerance)
        alone = fused(hidden[1:].to(device), *(each[1:] for each in beside))
        assert torch.equal(alone[0], found[1])  # an ear does not know of the others


def test_it_takes_two_launches(monkeypatch: pytest.MonkeyPatch) -> None:
    launches: Counter[str] = Counter()
    for name in kernels.N_WARPS:
        monkeypatch.setattr(kernels, name, Launches(name, launches))
    kernels.FusedNorm(WrittenOutNorm(some_norm(8, 40)))(some_rows(1, 40, 300))
    assert launches.total() == LAUNCHES_OF_A_NORM


@pytest.mark.parametrize("level", [100.0, 3000.0])
@torch.inference_mode()
def test_a_level_far_above_the_deviation_costs_no_digits(level: float, device: torch.device) -> None:
    """But those that PyTorch's own single precision loses too."""
    own, hidden = some_norm(8, 40), some_rows(1, 40, 1025) / 10 + level
    expected = nn.functional.silu(deepcopy(own).double()(hidden.double()))
    found = kernels.FusedNorm(WrittenOutNorm(own)).to(device)(hidden.to(device)).double().cpu()
    single = nn.functional.silu(own(hidden)).double()
    assert (found - expected).abs().max() < 4 * (single - expected).abs().max()


def test_a_generator_too_wide_keeps_its_norms_written_out() -> None:
    wide = for_inference(Generator(replace(GeneratorConfig.prime(4096), n_channels=136, dilations=(1,))), "cuda")
    assert kernels.for_kernels(wide) is wide


@torch.inference_mode()
def test_all_bins_of_the_papers_grid(device: torch.device) -> None:
    own, hidden = some_norm(8, 40), some_rows(1, 40, 16_385)
    expected = nn.functional.silu(deepcopy(own).double()(hidden.double()))
    found = kernels.FusedNorm(WrittenOutNorm(own)).to(device)(hidden.to(device)).double().cpu()
    torch.testing.assert_close(found, expected, rtol=0, atol=2e-6 * float(expected.abs().max()))


def test_a_model_that_loads_would_find_them_alike(device: torch.device) -> None:
    config, own = GeneratorConfig.prime(), WrittenOutNorm(some_norm(8, 40))
    expected, found = (_normed(each, config, device) for each in (own, kernels.FusedNorm(own)))
    for one, other in zip(found, expected, strict=True):
        assert float((one - other).norm() / other.norm()) < MOST_DIFFERENCE["norm"] / 2


@torch.inference_mode()
def test_a_generator_s_norms_are_swapped_and_no_others(device: torch.device) -> None:
    """To float16's rounding of what lies between the layers: as near as with the norms written out."""
    torch.manual_seed(6)
    prime = Generator(replace(GeneratorConfig.prime(4096), dilations=(1, 4))).eval()
    prime.head[-1].weight.normal_(std=0.1)
    written_out = for_inference(prime, "cuda")
    swapped = kernels.for_kernels(written_out).to(device)
    kinds = Counter(type(each) for each in swapped.modules())
    assert (kinds[kernels.FusedNorm], kinds[WrittenOutNorm]) == (6, 0)
    features = torch.randn(2, 12, 2049)
    expected = deepcopy(prime).double()(features.double())
    found, other = swapped(features.to(device)).double().cpu(), written_out(features).double()
    assert (found - expected).norm() <= 1.2 * (other - expected).norm() <= 1e-2 * expected.norm()
    log = Generator(GeneratorConfig.prime_log())
    assert kernels.for_kernels(log) is log


@pytest.mark.parametrize("precision", ["fp16", "fp32"])
def test_it_compiles_for_hopper(precision: str, tmp_path: Path) -> None:
    """Without spilling, and a thread moves sixteen bytes at once."""
    sizes: dict[str, int | bool] = {
        "CHANNELS": 40,
        "EACH": 5,
        "GROUPS": 8,
        "PLACES": 64,
        "PARTS": 256,
        "POINTS": kernels.POINTS,
        "ALIGNED": kernels.ALIGNED,
    }
    sizes |= {"ADDS": precision == "fp16"}
    types = dict.fromkeys(("hidden", "weight", "bias", "carried", "made"), f"*{precision}")
    types |= {"n_points": "i32", "n_parts": "i32", "eps": "fp32"}
    for name, each in compiled("synthesis.gpu.norm", sizes, types, tmp_path).items():
        assert each["stack"] == 0
        assert each["loads"]["v4"] > each["loads"].get("", 0), name
