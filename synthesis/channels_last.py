"""A generator's fastest form for inference: a point's channels side by side in memory, half precision on a GPU.

Parameters and values are the generator's own but for rounding. Convolutions see their rows as images of height 1 in
`torch.channels_last` order, for which libraries have their fastest kernels. PyTorch's group norm reads that order
as it lies on a CPU alone: on a GPU it copies what it is given into the other order and returns that, so there the
norm is written out, together with the SiLU that follows every norm. Only inference gains: the norm has no backward
of its own for that order, and what convolutions win there it loses again.
"""

from __future__ import annotations

from copy import deepcopy
from typing import cast

import torch
from torch import Tensor, nn

from synthesis.frequency_grid import LinearFrequencyGrid
from synthesis.generator import Generator, ResidualBlock

GPU_PRECISION = torch.float16
"""Of the stem and the blocks on a CUDA device; the head, which writes decibels, stays in float32.

Tensor cores multiply it as fast as bfloat16 and round it eight times finer; its range suffices, for every layer's
input is a standardised feature or comes out of a norm. Rounded so, a trained model's filters for 30 measured ears
changed their NR by at most 0.007 dB, in bfloat16 by 0.071 dB (docs/performance.md; 0.02 dB are allowed).
"""


def for_inference(generator: Generator, served_on: str | None = None) -> Generator:
    """A copy for designing. One that reads few log-spaced points stays as it is: there it gains nothing.

    served_on: the type of device whose form is wanted; None: of that which the generator is on.
    """
    copy = deepcopy(generator).eval()
    if isinstance(generator.grid, LinearFrequencyGrid):
        on_gpu = (served_on or next(generator.parameters()).device.type) == "cuda"
        if on_gpu:
            copy.stem, copy.head = _with_activations(copy.stem), _with_activations(copy.head)
            copy.blocks = nn.Sequential(*(_Block(cast(ResidualBlock, each)) for each in copy.blocks))
        _lay_out(copy)
        if on_gpu:
            round_trunk(copy, GPU_PRECISION)
    return copy


def round_trunk(generator: Generator, precision: torch.dtype) -> None:
    """Let stem and blocks compute in `precision`, in place."""
    outside = next(generator.head.parameters()).dtype
    generator.stem.to(precision).insert(0, _Cast(precision))
    generator.blocks.to(precision)
    generator.head.insert(0, _Cast(outside))


def _with_activations(layers: nn.Sequential) -> nn.Sequential:
    """Each norm takes the SiLU after it along."""
    kept: list[nn.Module] = []
    for each in layers:
        if isinstance(each, nn.GroupNorm):
            kept.append(WrittenOutNorm(each))
        elif not (isinstance(each, nn.SiLU) and kept and isinstance(kept[-1], WrittenOutNorm)):
            kept.append(each)
    return nn.Sequential(*kept)


class _Block(nn.Module):
    """`synthesis.generator.ResidualBlock` whose norms take what follows them along."""

    def __init__(self, block: ResidualBlock) -> None:
        super().__init__()
        self.first, self.second = block.first, block.second
        self.first_norm, self.second_norm = WrittenOutNorm(block.first_norm), WrittenOutNorm(block.second_norm)

    def forward(self, hidden: Tensor) -> Tensor:
        """[batch, channels, n] -> same."""
        inner = self.first_norm(self.first(hidden))
        made: Tensor = self.second_norm(self.second(inner), hidden)
        return made


def _lay_out(parent: nn.Module) -> None:
    for name, child in parent.named_children():
        if isinstance(child, nn.Conv1d):
            setattr(parent, name, _Convolution(child))
        elif isinstance(child, nn.GroupNorm):
            setattr(parent, name, _Norm(child))
        else:
            _lay_out(child)


class _Convolution(nn.Module):
    def __init__(self, layer: nn.Conv1d) -> None:
        super().__init__()
        weight = layer.weight.detach().unsqueeze(2)
        self.weight = nn.Parameter(weight.contiguous(memory_format=torch.channels_last))
        self.bias = layer.bias
        self.padding, self.dilation = (0, int(layer.padding[0])), (1, layer.dilation[0])

    def forward(self, hidden: Tensor) -> Tensor:
        """[batch, channels in, n] -> [batch, channels out, n], the order in memory [batch, n, channels]."""
        image = hidden.unsqueeze(2).contiguous(memory_format=torch.channels_last)
        return nn.functional.conv2d(
            image, self.weight, self.bias, padding=self.padding, dilation=self.dilation
        ).squeeze(2)


class _Norm(nn.Module):
    def __init__(self, layer: nn.GroupNorm) -> None:
        super().__init__()
        self.weight, self.bias = layer.weight, layer.bias
        self.n_groups, self.eps = layer.num_groups, layer.eps

    def forward(self, hidden: Tensor) -> Tensor:
        """[batch, channels, n] -> same. As an image, so that a CPU's kernel reads either order as it lies."""
        return nn.functional.group_norm(
            hidden.unsqueeze(2), self.n_groups, self.weight, self.bias, self.eps
        ).squeeze(2)


class WrittenOutNorm(_Norm):
    """A group norm and SiLU of small operators; `synthesis.gpu.norm` has them in kernels."""

    def forward(self, hidden: Tensor, carried: Tensor | None = None) -> Tensor:
        """silu(norm(hidden) + carried): [batch, channels, n] each, the order in memory [batch, n, channels]."""
        points = hidden.transpose(1, 2)
        grouped = points.unflatten(-1, (self.n_groups, -1))
        variance, mean = torch.var_mean(grouped, dim=(1, 3), correction=0, keepdim=True)
        scale = self.weight.view(self.n_groups, -1) * torch.rsqrt(variance + self.eps)
        shift = torch.addcmul(self.bias.view(self.n_groups, -1), mean, scale, value=-1)
        normed = torch.addcmul(shift, grouped, scale).flatten(2).transpose(1, 2)
        return nn.functional.silu(normed if carried is None else normed + carried)


class _Cast(nn.Module):
    def __init__(self, precision: torch.dtype) -> None:
        super().__init__()
        self.precision = precision

    def forward(self, hidden: Tensor) -> Tensor:
        return hidden.to(self.precision)
